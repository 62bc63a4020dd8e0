"""Leases without a clock in the store.

DynamoDB has no clock, and the wall clocks of two claimants may differ. So a lease is watched on the claimant's own steady
clock: its holder counts as silent only when the same grant with the same number of renewals was seen for a full lease.

The table is bounded. Forgetting an entry restarts its watch, which may delay doubt but never hastens it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import NamedTuple

from ._claims import Done, Doubt, Record

WATCHED_MAX = 65_536


class Sighting(NamedTuple):
    """What an open claim looks like. While it looks the same, its holder is silent."""

    token: str
    claimed_at: int
    renewals: int


class LeaseWatch:
    def __init__(self, bound: int = WATCHED_MAX) -> None:
        self._bound = bound
        self._lock = threading.Lock()
        self._entries: OrderedDict[str, tuple[Sighting, float]] = OrderedDict()

    def observe(self, index: str, sighting: Sighting, seen: float) -> float:
        """Since when the claim has looked like this. `seen` is read after the store's reply."""
        with self._lock:
            known = self._entries.pop(index, None)
            since = known[1] if known is not None and known[0] == sighting else seen
            self._entries[index] = (sighting, since)
            if len(self._entries) > self._bound:
                self._entries.popitem(last=False)
            return since

    def renewed(self, index: str, token: str, renewals: int, seen: float) -> None:
        """A grant that is not watched yet is watched from its next sighting."""
        with self._lock:
            known = self._entries.get(index)
        if known is not None and known[0].token == token:
            self.observe(index, known[0]._replace(renewals=renewals), seen)
        else:
            self.forget(index)

    def forget(self, index: str) -> None:
        with self._lock:
            self._entries.pop(index, None)

    def judged_at(self, record: Record, asked_wall: int, asked_steady: float, seen: float) -> int:
        """The time by which to evaluate a record that was just read.

        An open claim is evaluated by its own last renewal plus the silence that was watched, so that the error of neither
        clock moves a lease. The end of retention, and of doubt, is evaluated by the wall clock.
        """
        index = record.key.index
        if isinstance(record.state, Done):
            self.forget(index)
            return asked_wall
        sighting = Sighting(record.token, record.claimed_at, record.renewals)
        since = self.observe(index, sighting, seen)
        # From after the first sighting to before the last: at most as long as the holder was silent.
        silence_ms = max(0, int((asked_steady - since) * 1000))
        is_silent = silence_ms >= record.lease_ms or isinstance(record.state, Doubt)
        if is_silent and asked_wall >= record.expires_at:
            return asked_wall
        return record.renewed_at + silence_ms
