"""Event deduplication for bots, Lambdas and queue consumers: is this event new?

One step: an event is marked before it is handled, so a crash in between loses it. `once` does not lose it.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from ._claims import Mark
from ._digests import RETENTION_MS_MAX, Scalar, checked_key, checked_metadata, checked_ms, random_id
from ._dynamodb import DynamoDBLedger
from ._ledger import Ledger
from ._once import in_thread
from ._retry import Clock, SystemClock
from .errors import FallbackFull, LedgerError

logger = logging.getLogger("ichido")

TTL_HOURS = 6.0
FALLBACK_SECONDS = 60.0
FALLBACK_EVENTS_MAX = 10_000
_HANDED_OVER_PER_CALL = 25

SEEN = "Already processed by another instance"
SEEN_IN_MEMORY = "In-memory duplicate check"


@dataclass(frozen=True)
class DeduplicationResult:
    """Whether an event is new."""

    is_new: bool
    """Handle the event if this is true."""
    reason: str | None = None
    """Why the event is not new."""
    degraded: bool = False
    """The table is unavailable, and this instance answered from its own memory. Another one may call the event new too."""
    first_seen: datetime | None = None
    """When the event was first seen, if it is a duplicate and the table tells."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """The metadata of the call that came first, if the event is a duplicate."""


@dataclass(frozen=True)
class _Event:
    key: str
    nonce: str
    metadata: dict[str, Scalar]


class EventDeduplicationService:
    """Checks events against a DynamoDB table that all instances share.

    The table is `table_name`, `DEDUP_TABLE_NAME` or `slack-classify-bot-processed-events`, in the region `region`,
    `AWS_REGION` or us-east-1. Throttled and failed calls are retried for up to `timeout` seconds; if a reply is lost, the
    retry recognises its own mark and is not a duplicate of itself. `ledger` replaces the table, for example with a
    `ClaimApi`.
    """

    def __init__(
        self,
        *,
        table_name: str | None = None,
        region: str | None = None,
        endpoint_url: str | None = None,
        ttl_hours: float = TTL_HOURS,
        timeout: float = 5.0,
        client: Any = None,
        ledger: Ledger | None = None,
    ) -> None:
        self._retention_ms = checked_ms("ttl_hours", ttl_hours * 3600, RETENTION_MS_MAX)
        self._ledger: Ledger = ledger or DynamoDBLedger(
            table_name, region=region, endpoint_url=endpoint_url, timeout=timeout, client=client
        )

    def check_and_mark_processed(
        self, event_key: str, metadata: Mapping[str, Scalar] | None = None
    ) -> DeduplicationResult:
        """Says whether an event is new, and marks it."""
        return _result(self._mark(_event(event_key, metadata)))

    async def check_and_mark_processed_async(
        self, event_key: str, metadata: Mapping[str, Scalar] | None = None
    ) -> DeduplicationResult:
        """The same in a thread, for asyncio."""
        return await in_thread(lambda: self.check_and_mark_processed(event_key, metadata))

    def _mark(self, event: _Event) -> Mark:
        return self._ledger.mark(event.key, event.nonce, self._retention_ms, event.metadata)


class HybridDeduplicationService(EventDeduplicationService):
    """The same, but continues from memory while the table is unavailable.

    After a failure, this instance answers from its memory for `fallback_seconds`, with `degraded` in each result, then tries
    the table again and hands its marks over. Memory holds at most `fallback_events_max` events, each until its mark would
    expire. If it is full, the error of the table is raised instead (`FallbackFull`): an instance never calls an event new
    twice because it forgot the event. Errors that do not pass by themselves, such as a missing permission, are always raised.
    """

    def __init__(
        self,
        *,
        table_name: str | None = None,
        region: str | None = None,
        endpoint_url: str | None = None,
        ttl_hours: float = TTL_HOURS,
        timeout: float = 5.0,
        client: Any = None,
        ledger: Ledger | None = None,
        fallback_seconds: float = FALLBACK_SECONDS,
        fallback_events_max: int = FALLBACK_EVENTS_MAX,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(
            table_name=table_name, region=region, endpoint_url=endpoint_url, ttl_hours=ttl_hours, timeout=timeout,
            client=client, ledger=ledger,
        )
        self._fallback_seconds = fallback_seconds
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._turns = [threading.Lock() for _ in range(64)]
        self._memory = _Memory(fallback_events_max, self._retention_ms / 1000)
        self._retry_table_at: float | None = None
        self._outage: LedgerError | None = None

    @property
    def degraded(self) -> bool:
        """Whether the next event will be answered from memory."""
        with self._lock:
            return self._retry_table_at is not None and self._clock.steady() < self._retry_table_at

    def check_and_mark_processed(
        self, event_key: str, metadata: Mapping[str, Scalar] | None = None
    ) -> DeduplicationResult:
        event = _event(event_key, metadata)
        # Calls for one event take turns: if one of them falls back, the other must know what it accepted.
        with self._turns[hash(event.key) % len(self._turns)]:
            return self._check(event)

    def _check(self, event: _Event) -> DeduplicationResult:
        if self.degraded:
            return self._check_memory(event)
        with self._lock:
            if self._memory.was_accepted(event.key, self._clock.steady()):
                # This instance accepted it during an outage, and the table may not know yet.
                return DeduplicationResult(is_new=False, reason=SEEN_IN_MEMORY)
        try:
            mark = self._mark(event)
        except LedgerError as error:
            if not error.is_transient:
                raise
            self._start_fallback(error)
            return self._check_memory(event)
        with self._lock:
            self._memory.remember(event.key, self._clock.steady())
        if self._outage is not None:
            try:
                self._hand_over()
            except LedgerError as error:
                self._start_fallback(error)
        return _result(mark)

    def _start_fallback(self, error: LedgerError) -> None:
        with self._lock:
            if self._outage is None:
                logger.error("deduplication table unavailable; answering from memory: %s", error)
            self._outage = error
            self._retry_table_at = self._clock.steady() + self._fallback_seconds

    def _check_memory(self, event: _Event) -> DeduplicationResult:
        with self._lock:
            now = self._clock.steady()
            if self._memory.knows(event.key, now):
                return DeduplicationResult(is_new=False, reason=SEEN_IN_MEMORY, degraded=True)
            if not self._memory.accept(event, now):
                raise FallbackFull(
                    f"the table is unavailable and the memory fallback is full ({self._memory.bound} events); let the sender "
                    f"retry, or raise fallback_events_max. The table: {self._outage}",
                    may_have_happened=True,
                ) from self._outage
            return DeduplicationResult(is_new=True, degraded=True)

    def _hand_over(self) -> None:
        """Writes events that were accepted during the outage, a few per call: there is no background work that a freeze
        of the process could interrupt. A mark that another instance set meanwhile means that both handled the event."""
        with self._lock:
            waiting = self._memory.waiting(_HANDED_OVER_PER_CALL)
        for event in waiting:
            if not self._mark(event).is_new:
                logger.warning("event was accepted by two instances during the outage (event_key %s)", event.key)
            with self._lock:
                self._memory.handed_over(event.key)
        with self._lock:
            if not self._memory.waiting(1) and self._outage is not None:
                logger.info("deduplication table available again; all marks handed over")
                self._retry_table_at = self._outage = None


class _Memory:
    """Keys that this instance has seen, and when each may be forgotten. Not thread-safe.

    Keys that the table has as well make room for others, the oldest first. Keys that it does not have yet do not.
    """

    def __init__(self, bound: int, seconds: float) -> None:
        self.bound = bound
        self._seconds = seconds
        self._accepted: OrderedDict[str, float] = OrderedDict()
        self._waiting: OrderedDict[str, _Event] = OrderedDict()
        self._in_table: OrderedDict[str, float] = OrderedDict()

    def knows(self, key: str, now: float) -> bool:
        return self.was_accepted(key, now) or self._in_table.get(key, now) > now

    def was_accepted(self, key: str, now: float) -> bool:
        return self._accepted.get(key, now) > now

    def remember(self, key: str, now: float) -> None:
        self._forget_expired(now)
        if key not in self._in_table:
            self._in_table[key] = now + self._seconds
        while self._in_table and len(self._in_table) + len(self._accepted) > self.bound:
            self._in_table.popitem(last=False)

    def accept(self, event: _Event, now: float) -> bool:
        self._forget_expired(now)
        if len(self._accepted) >= self.bound:
            return False
        self._accepted[event.key] = now + self._seconds
        self._waiting[event.key] = event
        while self._in_table and len(self._in_table) + len(self._accepted) > self.bound:
            self._in_table.popitem(last=False)
        return True

    def waiting(self, limit: int) -> list[_Event]:
        return [event for event, _ in zip(self._waiting.values(), range(limit))]

    def handed_over(self, key: str) -> None:
        self._waiting.pop(key, None)
        expires_at = self._accepted.pop(key, None)
        if expires_at is not None:
            self._in_table[key] = expires_at

    def _forget_expired(self, now: float) -> None:
        for keys in (self._accepted, self._in_table):
            while keys and next(iter(keys.values())) <= now:
                key, _ = keys.popitem(last=False)
                if keys is self._accepted:
                    self._waiting.pop(key, None)


def _event(event_key: str, metadata: Mapping[str, Scalar] | None) -> _Event:
    return _Event(checked_key(event_key), random_id(), checked_metadata(metadata))


def _result(mark: Mark) -> DeduplicationResult:
    if mark.is_new:
        return DeduplicationResult(is_new=True, degraded=mark.degraded)
    seen = datetime.fromtimestamp(mark.first_seen, timezone.utc) if mark.first_seen else None
    return DeduplicationResult(False, SEEN, mark.degraded, seen, mark.metadata)
