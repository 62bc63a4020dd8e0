"""How to retry an HTTP request with an Idempotency-Key: one key per operation, the same key on every retry.

This module decides; `ichido.httpx` and `ichido.requests` send.
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

from ._api import retry_after_seconds
from ._retry import backoff
from .errors import CallerChanged, IchidoError, InDoubt, InFlight, KeyReused, OutcomeNotKept, Unanswered

logger = logging.getLogger("ichido")

HEADER = "Idempotency-Key"

# The server has not run the request, or runs it at most once under its key.
_RETRIED = frozenset({408, 425, 429, 502, 503, 504})
_RETRIED_PROBLEMS = frozenset({"body-broken", "handler-failed"})
_IN_FLIGHT = frozenset({"in-flight", "idempotency_in_flight"})


@dataclass(frozen=True)
class RetryPolicy:
    """How often to send a request again, and which requests get a key."""

    timeout: float = 60.0
    """How long to keep trying, in seconds, counted from the first attempt. Servers forget keys after hours at the earliest."""
    first_pause: float = 0.5
    longest_pause: float = 8.0
    methods: frozenset[str] = field(default=frozenset({"POST", "PATCH"}))
    """Requests with these methods get a key. Any request that has one already is retried as well."""

    def operation(self, method: str, key: str | None) -> Operation | None:
        """The operation that a request begins; `None` if it has no key and gets none."""
        if key is None and method.upper() not in self.methods:
            return None
        return Operation(self, key or new_key())


def new_key() -> str:
    """A key that nobody can guess, as a structured-field string."""
    return f'"{uuid.uuid4()}"'


class Operation:
    """One operation: all attempts share its key."""

    def __init__(self, policy: RetryPolicy, key: str) -> None:
        self.key = key
        self._deadline = time.monotonic() + policy.timeout
        self._timeout = policy.timeout
        self._pauses = backoff(policy.first_pause, policy.longest_pause)
        self._attempts = 0
        self._may_have_happened = False

    def after_failure(self, error: Exception, *, was_sent: bool) -> float:
        """The pause before the next attempt, after one without a response."""
        self._may_have_happened = self._may_have_happened or was_sent
        pause = self._pause(0.0)
        if pause is None:
            happened = "it may have taken effect" if self._may_have_happened else "it was not sent"
            raise Unanswered(
                f"no response after {self._attempts} attempts in {self._timeout:g} s ({type(error).__name__}); {happened}. Send "
                "the same request again later, with the same Idempotency-Key (`key` of this error)",
                key=self.key, may_have_happened=self._may_have_happened,
            ) from error
        return pause

    def after_response(self, status: int, headers: Mapping[str, str], body: bytes) -> float | None:
        """The pause before the next attempt; `None` if this is the response of the operation."""
        # A replay is the final response, whatever its status. Stripe names the header differently.
        if status < 400 or "true" in (headers.get("Idempotency-Replayed"), headers.get("Idempotent-Replayed")):
            return None
        code, detail = _problem(headers, body)
        error = self._error(code, detail)
        if error is not None:
            raise error
        retry_after = retry_after_seconds(headers.get("Retry-After"), time.time())
        # Other servers with keys: a conflict that names a time is a request in flight.
        in_flight = code in _IN_FLIGHT or (status == 409 and retry_after > 0)
        should_retry = headers.get("x-should-retry") or headers.get("Stripe-Should-Retry")
        invited = in_flight or should_retry == "true" or status in _RETRIED or code in _RETRIED_PROBLEMS
        if should_retry == "false" or not invited:
            return None
        pause = self._pause(retry_after)
        if pause is None and in_flight:
            raise InFlight(
                f"the first request is still running after {self._timeout:g} s; send the same request again later, with the "
                "same key", key=self.key, retry_after=retry_after,
            )
        return pause

    def _pause(self, at_least: float) -> float | None:
        self._attempts += 1
        pause = max(next(self._pauses), at_least)
        if time.monotonic() + pause > self._deadline:
            return None
        logger.debug("sending the request again with the same key in %.2f s", pause)
        return pause

    def _error(self, code: str, detail: str) -> IchidoError | None:
        match code:
            case "in-doubt":
                return InDoubt(
                    f"it may have taken effect, and nobody knows ({detail}); do not use a new key: look the operation up, or "
                    "ask the operator of the API", key=self.key, reason=detail,
                )
            case "key-reused" | "idempotency_conflict":
                return KeyReused(
                    f"the key belongs to another request ({detail}); generate a new key for each operation", key=self.key
                )
            case "caller-changed":
                return CallerChanged(
                    f"the key was first used with other credentials ({detail}); this request did nothing. Send it with the "
                    "first credentials, or look up what became of the first request before you use a new key", key=self.key
                )
            case "answer-not-kept":
                return OutcomeNotKept(
                    f"it was done, but its response was not kept ({detail}); look up what it did", key=self.key, reason=detail
                )
            case _:
                return None


def is_stream(headers: Mapping[str, str]) -> bool:
    """Whether the caller reads the response piece by piece. Others are read at once, so that one that breaks off halfway is
    retried."""
    return headers.get("Content-Type", "").startswith("text/event-stream")


def _problem(headers: Mapping[str, str], body: bytes) -> tuple[str, str]:
    """The code and detail of an error response: RFC 9457, or a flat object with a code."""
    if "json" not in headers.get("Content-Type", ""):
        return "", ""
    try:
        problem = json.loads(body)
    except ValueError:
        return "", ""
    if not isinstance(problem, dict):
        return "", ""
    detail = problem.get("detail") or problem.get("message") or problem.get("title") or ""
    if "problem+json" in headers.get("Content-Type", ""):
        return str(problem.get("type", "")).rsplit("/", 1)[-1], str(detail)
    return str(problem.get("code", "")), str(detail)
