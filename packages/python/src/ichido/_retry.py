"""Retries within a deadline, and the clocks that they and leases use."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Protocol, TypeVar

from .errors import Contended, LedgerError

T = TypeVar("T")


class Clock(Protocol):
    """Time is passed in, so that tests can control it."""

    def wall_ms(self) -> int:
        """The wall clock. It may jump in both directions."""

    def steady(self) -> float:
        """Seconds since some moment. It never goes back."""

    def sleep(self, seconds: float) -> None: ...


class SystemClock:
    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def steady(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


def backoff(first: float, longest: float) -> Generator[float, None, None]:
    """Pauses that double, each shortened by up to half, so that callers that failed together do not return together."""
    pause = first
    while True:
        yield pause * random.uniform(0.5, 1.0)
        pause = min(pause * 2, longest)


@dataclass(frozen=True)
class Retry:
    """How long a call to the ledger may take in all, and how long to pause between its tries."""

    timeout: float = 5.0
    first_pause: float = 0.025
    longest_pause: float = 1.0

    def call(self, clock: Clock, attempt: Callable[[], T]) -> tuple[T, bool]:
        """Calls until there is an answer. Also returns whether an earlier try may have been applied."""
        deadline = clock.steady() + self.timeout
        maybe_applied = False
        for pause in backoff(self.first_pause, self.longest_pause):
            try:
                return attempt(), maybe_applied
            except LedgerError as error:
                maybe_applied = maybe_applied or error.may_have_happened
                # A concurrent change is over soon; an outage is not.
                wait = pause / 16 if isinstance(error, Contended) else max(pause, error.retry_after)
                if not error.is_transient or clock.steady() + wait >= deadline:
                    error.may_have_happened = maybe_applied
                    raise
            clock.sleep(wait)
        raise AssertionError("pauses do not end")
