"""Errors: what failed, and what to do.

Each error also answers the question that matters before a retry: may the effect have happened?
"""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

__all__ = [
    "CallerChanged", "ClockSkew", "Contended", "FallbackFull", "IchidoError", "InDoubt", "InFlight", "InvalidInput", "ItemError",
    "KeyReused", "LeaseLost", "LedgerError", "NothingHappened", "OlderServer", "OutcomeNotKept", "PermissionDenied", "Refused",
    "TableMissing", "Throttled", "TokenRefused", "Unanswered", "Unreachable", "Unrecorded",
]


class IchidoError(Exception):
    """The base of all errors of this package."""

    may_have_happened: bool = False
    """Whether the effect may have happened. If it is false, the same call may safely be made again."""


class InvalidInput(IchidoError, ValueError):
    """A value is missing, too large, or not allowed. Nothing was written."""


class NothingHappened(IchidoError):
    """Raise this from your function if its effect provably did not happen. The key is released for the next caller."""


class KeyedError(IchidoError):
    """An error about one key."""

    def __init__(self, message: str, *, key: str) -> None:
        super().__init__(message)
        self.key = key


class InFlight(KeyedError):
    """Another caller is running the effect, and did not finish while this one waited. Try again later."""

    def __init__(self, message: str, *, key: str, retry_after: float) -> None:
        super().__init__(message, key=key)
        self.retry_after = retry_after


class InDoubt(KeyedError):
    """Nobody knows whether the effect happened. Do not retry under another key: look it up, then resolve the claim."""

    may_have_happened = True

    def __init__(self, message: str, *, key: str, reason: str = "", since: datetime | None = None) -> None:
        super().__init__(message, key=key)
        self.reason = reason
        self.since = since


class Unanswered(KeyedError):
    """There was no response to an HTTP request until the deadline. Send the same request again later, with the same key."""

    def __init__(self, message: str, *, key: str, may_have_happened: bool) -> None:
        super().__init__(message, key=key)
        self.may_have_happened = may_have_happened


class KeyReused(KeyedError):
    """The key was used for a different request. This is a bug in how keys are generated."""


class CallerChanged(KeyedError):
    """The key was first used with other credentials. This request did nothing."""


class OutcomeNotKept(KeyedError):
    """The effect happened before, but its result was not kept. Look up what it did."""

    may_have_happened = True

    def __init__(self, message: str, *, key: str, reason: str = "") -> None:
        super().__init__(message, key=key)
        self.reason = reason


class _WithValue(KeyedError):
    may_have_happened = True

    def __init__(self, message: str, *, key: str, value: object) -> None:
        super().__init__(message, key=key)
        self.value = value
        """What the function returned."""


class LeaseLost(_WithValue):
    """The effect ran, but the claim was settled by someone else meanwhile: the effect may have happened twice.

    This happens if the process was frozen or cut off for longer than its lease (`paused_seconds`).
    """

    def __init__(self, message: str, *, key: str, value: object, state: str, paused_seconds: float) -> None:
        super().__init__(message, key=key, value=value)
        self.state = state
        self.paused_seconds = paused_seconds


class Unrecorded(_WithValue):
    """The effect ran, but its outcome could not be recorded. The claim becomes in doubt: resolve it as done."""


class LedgerError(IchidoError):
    """The ledger failed. `may_have_happened` refers to the call to the ledger, not to your function."""

    is_transient: ClassVar[bool] = False
    """Whether the same call may succeed soon. Only such errors start the memory fallback."""

    def __init__(self, message: str, *, may_have_happened: bool = False, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.may_have_happened = may_have_happened
        self.retry_after = retry_after


class Unreachable(LedgerError):
    """No server answers, or it does not answer in time."""

    is_transient = True


class TableMissing(Unreachable):
    """The table does not exist."""


class Throttled(LedgerError):
    """The table asks for fewer requests, and did so until the deadline."""

    is_transient = True


class Contended(LedgerError):
    """Other writers changed the item during every try until the deadline."""

    is_transient = True


class PermissionDenied(LedgerError):
    """AWS does not know these credentials, or they lack a permission."""


class ClockSkew(LedgerError):
    """The clock of this machine is wrong."""


class TokenRefused(LedgerError):
    """The claim API refused the token."""


class OlderServer(LedgerError):
    """The server is older than this package needs, or it is not ichido."""


class Refused(LedgerError):
    """The server refused the call, and a retry does not help."""


class ItemError(LedgerError):
    """An item of the table is damaged, or of a format that this version does not know."""


class FallbackFull(LedgerError):
    """The memory fallback has no room for another event, and never forgets one that it must remember."""
