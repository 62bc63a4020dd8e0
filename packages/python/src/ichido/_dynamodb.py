"""A ledger in a table of Amazon DynamoDB, with the same items as the ichido binary.

A grant is a put under the condition that no item exists. If one exists, the rules decide, and a takeover is a put under
the condition that token, renewals and state are still those that were read. A settlement is one update that compares the
token, never a snapshot. Only if it is refused is the item read, to find out why.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ._claims import (
    DOUBT_RETENTION_MS, Applied, Claim, ClaimRequest, Done, Doubt, Granted, Key, Mark, Outcome, Record, Running, Settled,
    Stale, decide_claim, decide_doubt, new_record,
)
from ._digests import Scalar
from ._items import (
    FORMAT, FORMAT_CALLER, Item, Value, blob, ceil_seconds, claim_item_key, decode_claim, encode_claim, encode_mark,
    first_seen, fitting, mark_metadata, mark_nonce, number, text,
)
from ._lease_watch import LeaseWatch, Sighting
from ._retry import Clock, Retry, SystemClock
from ._table import ABSENT, Condition, Refused, Table, Written
from .errors import Contended

# The token is current, and the claim is neither completed nor expired.
_HELD = (
    "ichido_token = :token AND ichido_state IN (:running, :doubt) AND ichido_over_at > :now "
    "AND ichido_format IN (:format, :format_caller)"
)
_RENEW = (
    "SET ichido_state = :running, ichido_renewed_at = :now, ichido_lease_ms = :lease, "
    "ichido_renewals = ichido_renewals + :one, ichido_over_at = :over "
    "REMOVE ichido_doubt, ichido_doubt_since, ichido_doubt_text, #ttl"
)
_COMPLETE = (
    "SET ichido_state = :done, ichido_completed_at = :now, ichido_over_at = ichido_retention_ms + :now, "
    "#ttl = ichido_retention_seconds + :seconds, {} REMOVE ichido_doubt, ichido_doubt_since, ichido_doubt_text"
)
_COMPLETE_KEPT = _COMPLETE.format("ichido_outcome = :outcome, ichido_outcome_bytes = :size")
_COMPLETE_TOMBSTONE = _COMPLETE.format("ichido_tombstone = :tombstone")


class DynamoDBLedger:
    """Claims and marks in a DynamoDB table. Create one per process and share it: it watches the leases of others.

    The table is `table`, `DEDUP_TABLE_NAME` or `slack-classify-bot-processed-events`, in the region `region`, `AWS_REGION`
    or us-east-1. Credentials come from AWS's own chain. A call is retried for up to `timeout` seconds. `client` is a
    low-level boto3 client, for settings that this class does not have.
    """

    def __init__(
        self,
        table: str | None = None,
        *,
        region: str | None = None,
        endpoint_url: str | None = None,
        timeout: float = 5.0,
        client: Any = None,
        clock: Clock | None = None,
    ) -> None:
        self._table = Table(table, region, endpoint_url, client)
        self._retry = Retry(timeout=timeout)
        self._clock = clock or SystemClock()
        self._watch = LeaseWatch()

    def __repr__(self) -> str:
        return f"DynamoDBLedger({self._table.name!r})"

    def claim(self, request: ClaimRequest) -> Claim:
        return self._retry.call(self._clock, lambda: self._claim(request))[0]

    def renew(self, key: Key, token: str, lease_ms: int) -> Settled:
        def renew() -> Settled:
            now = self._clock.wall_ms()
            values = {":lease": number(lease_ms), ":one": number(1), ":over": number(now + lease_ms + DOUBT_RETENTION_MS)}
            return self._settle(key, token, now, _RENEW, values)

        return self._retry.call(self._clock, renew)[0]

    def complete(self, key: Key, token: str, outcome: Outcome) -> Settled:
        def complete() -> Settled:
            now = self._clock.wall_ms()
            values = {":done": text("done"), ":seconds": number(ceil_seconds(now))}
            kept = fitting(outcome)
            if kept.kept is None:
                return self._settle(key, token, now, _COMPLETE_TOMBSTONE, values | {":tombstone": text(kept.not_kept)})
            values |= {":outcome": blob(kept.kept), ":size": number(len(kept.kept))}
            return self._settle(key, token, now, _COMPLETE_KEPT, values)

        return self._retry.call(self._clock, complete)[0]

    def release(self, key: Key, token: str) -> Settled:
        settled, maybe_applied = self._retry.call(
            self._clock, lambda: self._settle(key, token, self._clock.wall_ms(), None, {})
        )
        # A release that is retried after a lost reply finds no claim, as intended.
        return Applied() if settled == Stale("absent") and maybe_applied else settled

    def doubt(self, key: Key, token: str, reason: str) -> Settled:
        return self._retry.call(self._clock, lambda: self._doubt(key, token, reason))[0]

    def mark(self, key: str, nonce: str, retention_ms: int, metadata: Mapping[str, Scalar]) -> Mark:
        """Marks an event. A retry with the same nonce after a lost reply is new again."""
        return self._retry.call(self._clock, lambda: self._mark(key, nonce, retention_ms, metadata))[0]

    def _claim(self, request: ClaimRequest) -> Claim:
        index = request.key.index
        wall, steady = self._clock.wall_ms(), self._clock.steady()
        match self._table.put(encode_claim(new_record(request, wall)), ABSENT):
            case Written():
                return self._granted(request, wall)
            case Refused(found):
                if found is None:
                    raise Contended(f"claim {index} changed while it was read; retry")
                record = decode_claim(found)
        judged_at = self._watch.judged_at(record, wall, steady, self._clock.steady())
        decision = decide_claim(record, request, judged_at)
        if decision is not None:
            return decision
        # A grant is dated by the wall clock; the time of evaluation may come from the lease watch.
        if isinstance(self._table.put(encode_claim(new_record(request, wall)), _unchanged(record)), Refused):
            raise Contended(f"claim {index} changed while it was taken; retry")
        return self._granted(request, wall)

    def _granted(self, request: ClaimRequest, wall: int) -> Granted:
        sighting = Sighting(request.token, wall, 0)
        self._watch.observe(request.key.index, sighting, self._clock.steady())
        return Granted(request.token, 1, request.lease_ms, left_ms=request.lease_ms)

    def _settle(self, key: Key, token: str, now: int, update: str | None, values: dict[str, Value]) -> Settled:
        """Updates the claim if the token is current, or removes it if there is no update."""
        event_key = claim_item_key(key)
        held = Condition(_HELD, {
            ":token": text(token), ":running": text("running"), ":doubt": text("in-doubt"), ":now": number(now),
            ":format": number(FORMAT), ":format_caller": number(FORMAT_CALLER),
        } | values)
        if update is None:
            written = self._table.delete(event_key, held)
        else:
            written = self._table.update(event_key, update, held)
        match written:
            case Written(changed):
                self._update_watch(key, token, changed)
                return Applied()
            case Refused(found):
                return _refused(None if found is None else decode_claim(found), token, now, update)

    def _update_watch(self, key: Key, token: str, changed: Item) -> None:
        renewals = changed.get("ichido_renewals", {}).get("N")
        if renewals is None:
            self._watch.forget(key.index)
        else:
            self._watch.renewed(key.index, token, int(renewals), self._clock.steady())

    def _doubt(self, key: Key, token: str, reason: str) -> Settled:
        # When the doubt began depends on the lease, so this is the one action that has to read first.
        found = self._table.get(claim_item_key(key))
        record = None if found is None else decode_claim(found)
        settled, changed = decide_doubt(record, token, reason, self._clock.wall_ms())
        if record is not None and changed is not None:
            if isinstance(self._table.put(encode_claim(changed), _unchanged(record)), Refused):
                raise Contended(f"claim {key.index} changed while it was settled; retry")
        return settled

    def _mark(self, key: str, nonce: str, retention_ms: int, metadata: Mapping[str, Scalar]) -> Mark:
        now = self._clock.wall_ms()
        free = Condition("attribute_not_exists(event_key) OR #ttl <= :now", {":now": number(now // 1000)})
        match self._table.put(encode_mark(key, nonce, now, retention_ms, metadata), free):
            case Written():
                return Mark(is_new=True)
            case Refused(found):
                if found is None:
                    raise Contended("the mark was removed while it was read; retry")
                if mark_nonce(found) == nonce:
                    return Mark(is_new=True)
                return Mark(is_new=False, first_seen=first_seen(found), metadata=mark_metadata(found))


def _refused(record: Record | None, token: str, now: int, update: str | None) -> Settled:
    state = "absent" if record is None else record.state_at(now)
    if record is None or record.token != token or state == "absent":
        return Stale(state)
    if state == "done":
        # Completing again after a lost reply: the first outcome stays.
        return Applied() if update in (_COMPLETE_KEPT, _COMPLETE_TOMBSTONE) else Stale(state)
    # It was refused, but would be accepted now: something changed in between.
    raise Contended(f"claim {record.key.index} changed while it was settled; retry")


def _unchanged(record: Record) -> Condition:
    match record.state:
        case Running():
            state = "running"
        case Doubt():
            state = "in-doubt"
        case Done():
            state = "done"
    return Condition(
        "ichido_token = :token AND ichido_claimed_at = :claimed_at AND ichido_renewals = :renewals AND ichido_state = :state",
        {
            ":token": text(record.token), ":claimed_at": number(record.claimed_at), ":renewals": number(record.renewals),
            ":state": text(state),
        },
    )
