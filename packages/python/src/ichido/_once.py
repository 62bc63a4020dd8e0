"""Runs a function once per key: claim, run, record the outcome.

The steps are written once, as a generator that asks for calls, pauses and the run of the function. Two drivers carry them
out: one blocks, the other awaits and makes the calls in threads.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
import logging
import threading
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, TypeAlias, TypeVar, cast, overload

from ._claims import ClaimRequest, Doubt, Granted, Held, Key, Mismatch, OtherCaller, Outcome, Settled, Stale
from ._digests import (
    FINGERPRINT_BYTES_MAX, LEASE_MS_MAX, OUTCOME_BYTES_MAX, RETENTION_MS_MAX, Scalar, as_texts, checked_key, checked_metadata,
    checked_ms, checked_text, random_id,
)
from ._ledger import Ledger, ledger_for
from ._retry import Clock, SystemClock, backoff
from .errors import (
    CallerChanged, LeaseLost, NothingHappened, InDoubt, InFlight, InvalidInput, KeyReused, Unrecorded,
    OutcomeNotKept,
)

logger = logging.getLogger("ichido")

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_LEASE = 30.0
DEFAULT_RETENTION = 86_400.0
DEFAULT_WAIT = 60.0
RENEW_FOR = 600.0
"""For how long after its grant a claim is renewed at most. A function that hangs must not hold its key forever."""

_RESOLVE = "look up what it did, then run `ichido ledger resolve`"


# For an async function, T is its coroutine.
@overload
def once(
    key: str,
    fn: Callable[[], T],
    *,
    ledger: Ledger | None = None,
    api: str | None = None,
    token: str | None = None,
    fingerprint: str | None = None,
    metadata: Mapping[str, Scalar] | None = None,
    lease: float = DEFAULT_LEASE,
    retention: float = DEFAULT_RETENTION,
    wait: float = DEFAULT_WAIT,
) -> T: ...


@overload
def once(
    *,
    key: Callable[..., str],
    ledger: Ledger | None = None,
    api: str | None = None,
    token: str | None = None,
    fingerprint: Callable[..., str] | None = None,
    metadata: Callable[..., Mapping[str, Scalar]] | None = None,
    lease: float = DEFAULT_LEASE,
    retention: float = DEFAULT_RETENTION,
    wait: float = DEFAULT_WAIT,
) -> Callable[[F], F]: ...


def once(
    key: str | Callable[..., str],
    fn: Callable[[], Any] | None = None,
    *,
    ledger: Ledger | None = None,
    api: str | None = None,
    token: str | None = None,
    fingerprint: str | Callable[..., str] | None = None,
    metadata: Mapping[str, Scalar] | Callable[..., Mapping[str, Scalar]] | None = None,
    lease: float = DEFAULT_LEASE,
    retention: float = DEFAULT_RETENTION,
    wait: float = DEFAULT_WAIT,
) -> Any:
    """Runs `fn` unless it ran before under this key, and returns its first result in either case.

    The result must be JSON: it is stored for `retention` seconds and replayed. While `fn` runs, its lease of `lease` seconds
    is renewed. If another caller is running it, this one waits up to `wait` seconds for its result. `fingerprint` stands for
    the request, so that a key that was used for something else is detected. With an async `fn`, await the result.

    If `fn` raises `NothingHappened`, the key is released. If it raises anything else, or the process crashes, nobody knows
    whether the effect happened: every later call raises `InDoubt` until an operator resolves the claim.

    As a decorator, `key`, `fingerprint` and `metadata` are functions of the arguments:

        @once(key=lambda order: f"charge:{order['id']}", api="http://127.0.0.1:8070")
        def charge(order): ...
    """
    def start(fn: Callable[[], Any], key: str, fingerprint: str | None, metadata: Mapping[str, Scalar] | None) -> Any:
        request = ClaimRequest(
            key=Key(checked_key(key)),
            fingerprint_text=fingerprint and checked_text("fingerprint", fingerprint, FINGERPRINT_BYTES_MAX),
            nonce=random_id(), token=random_id(), lease_ms=checked_ms("lease", lease, LEASE_MS_MAX),
            retention_ms=checked_ms("retention", retention, RETENTION_MS_MAX), metadata=as_texts(checked_metadata(metadata)),
        )
        steps = _steps(ledger_for(ledger, api, token), request, fn, wait, SystemClock())
        return _drive_async(steps) if _is_async(fn) else _drive(steps)

    if isinstance(key, str):
        if fn is None:
            raise InvalidInput("once needs a function; as a decorator, `key` is a function of the arguments")
        return start(fn, key, cast("str | None", fingerprint), cast("Mapping[str, Scalar] | None", metadata))
    if fn is not None or not callable(key):
        raise InvalidInput("key must be a string; as a decorator, `key` is a function of the arguments")

    def of(value: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        return value(*arguments, **named) if callable(value) else value

    def decorate(function: F) -> F:
        def call(*arguments: Any, **named: Any) -> Any:
            return start(
                functools.partial(function, *arguments, **named),
                *(of(value, arguments, named) for value in (key, fingerprint, metadata)),
            )

        async def call_async(*arguments: Any, **named: Any) -> Any:
            return await call(*arguments, **named)

        return cast(F, functools.wraps(function)(call_async if _is_async(function) else call))

    return decorate


@dataclass(frozen=True)
class _Call:
    function: Callable[[], Any]


@dataclass(frozen=True)
class _Sleep:
    seconds: float


@dataclass(frozen=True)
class _Run:
    function: Callable[[], Any]


_Steps: TypeAlias = Generator[_Call | _Sleep | _Run, Any, Any]


def _steps(ledger: Ledger, request: ClaimRequest, fn: Callable[[], Any], wait: float, clock: Clock) -> _Steps:
    key, deadline = request.key, clock.steady() + wait
    for pause in backoff(0.1, 2.0):
        lease = _Lease(ledger, request, clock)
        try:
            claim = yield _Call(lease.claim)
            is_confirmed = isinstance(claim, Granted) and (yield _Call(lease.confirm))
        except Exception:
            raise
        except BaseException:
            # Cancelled before the function was started, so nobody needs to wonder whether it ran.
            if lease.grant is not None:
                yield _Call(functools.partial(_settle_quietly, key, lease.release))
            raise
        match claim:
            case Granted() if is_confirmed:
                return (yield from _run(lease, fn))
            case Granted():
                raise InFlight(
                    f"{key.text!r} was granted, but the lease lapsed before the function started; nothing was run, call again",
                    key=key.text, retry_after=request.lease_ms / 1000,
                )
            case Outcome(kept=None, not_kept=reason):
                raise OutcomeNotKept(
                    f"{key.text!r} ran before, but its result was not kept ({reason}); look up what it did", key=key.text,
                    reason=reason,
                )
            case Outcome(kept=outcome):
                return _replayed(outcome or b"null")
            case Doubt() as doubt:
                reason, since = doubt.describe(), datetime.fromtimestamp(doubt.since / 1000, timezone.utc)
                raise InDoubt(
                    f"{key.text!r} is in doubt since {since:%Y-%m-%dT%H:%M:%SZ}: {reason}; it may have happened, so {_RESOLVE}",
                    key=key.text, reason=reason, since=since,
                )
            case Mismatch():
                raise KeyReused(
                    f"{key.text!r} was used with another fingerprint; use a new key for a new operation", key=key.text
                )
            case OtherCaller():
                raise CallerChanged(f"{key.text!r} was used by another caller", key=key.text)
            case Held(retry_after_ms, ask_again_ms):
                pause = max(min(pause, retry_after_ms / 1000), ask_again_ms / 1000)
                if clock.steady() + pause > deadline:
                    raise InFlight(
                        f"{key.text!r} is being run by another caller; call again later", key=key.text,
                        retry_after=retry_after_ms / 1000,
                    )
                yield _Sleep(pause)


def _run(lease: _Lease, fn: Callable[[], Any]) -> _Steps:
    key = lease.request.key.text
    lease.start_renewal()
    try:
        value = yield _Run(fn)
        if inspect.isawaitable(value):
            if inspect.iscoroutine(value):
                value.close()
            raise NothingHappened(f"the function for {key!r} returned an awaitable; pass an async function, and await `once`")
    except NothingHappened:
        yield _Call(lambda: _settle_quietly(lease.request.key, lease.release))
        raise
    except BaseException as error:
        # A timeout, a lost connection, a bug, a cancellation: it may have happened.
        # Only the name: a message may contain a secret, and the reason is shown to operators.
        reason = f"the function failed with {type(error).__name__}"[:500]
        yield _Call(lambda: _settle_quietly(lease.request.key, lambda: lease.doubt(reason)))
        if not isinstance(error, Exception):
            raise
        raise InDoubt(f"{key!r} failed ({type(error).__name__}), and it may have happened; {_RESOLVE}", key=key, reason=reason) \
            from error
    try:
        settled = yield _Call(lambda: lease.complete(_outcome(value)))
    except Exception as error:
        raise Unrecorded(
            f"{key!r} ran, but its outcome could not be recorded ({error}); the claim becomes in doubt: resolve it as done",
            key=key, value=value,
        ) from error
    if isinstance(settled, Stale):
        raise LeaseLost(
            f"{key!r} ran, but its claim is {settled.state} by now, after {lease.longest_silence:.1f} s without renewal (the "
            f"lease is {lease.request.lease_ms / 1000:g} s): the process was frozen or cut off, and someone else settled the "
            "claim. It may have happened twice; look up what was done, and choose a longer lease",
            key=key, value=value, state=settled.state, paused_seconds=lease.longest_silence,
        )
    return value


class _Lease:
    """A claim of this process, from the request to its settlement."""

    def __init__(self, ledger: Ledger, request: ClaimRequest, clock: Clock) -> None:
        self.ledger, self.request, self.clock = ledger, request, clock
        self.grant: Granted | None = None
        self.longest_silence = 0.0
        self._confirmed = self._now()
        self._ended = threading.Event()
        self._renewing: threading.Thread | None = None

    def claim(self) -> object:
        confirmed = self._now()
        claim = self.ledger.claim(self.request)
        if isinstance(claim, Granted):
            self.grant, self._confirmed = claim, confirmed
            if claim.degraded:
                logger.warning("the ledger is unavailable and the claim is local; another instance may run the same key")
        return claim

    def confirm(self) -> bool:
        """Whether the grant is still good enough to start. Part of its lease is used up if a reply was lost, or if the
        process was frozen."""
        half = self.request.lease_ms / 2
        if self.grant is not None and self.grant.left_ms >= half and self._silence() * 1000 < half:
            return True
        return self._renew() is None

    def start_renewal(self) -> None:
        self._renewing = threading.Thread(target=self._keep_renewing, name="ichido-renewal", daemon=True)
        self._renewing.start()

    def complete(self, outcome: Outcome) -> Settled:
        self._stop_renewal()
        return self.ledger.complete(self.request.key, self._token, outcome)

    def release(self) -> Settled:
        self._stop_renewal()
        return self.ledger.release(self.request.key, self._token)

    def doubt(self, reason: str) -> Settled:
        # A renewal that arrives after the doubt would end it.
        self._stop_renewal()
        return self.ledger.doubt(self.request.key, self._token, reason)

    @property
    def _token(self) -> str:
        return self.grant.token if self.grant is not None else self.request.token

    def _now(self) -> tuple[float, int]:
        return self.clock.steady(), self.clock.wall_ms()

    def _silence(self) -> float:
        """Seconds since the lease was last known to be held. A frozen process may stop either clock, so the longer counts."""
        (steady, wall), (steady_now, wall_now) = self._confirmed, self._now()
        silence = max(steady_now - steady, (wall_now - wall) / 1000)
        self.longest_silence = max(self.longest_silence, silence)
        return silence

    def _renew(self) -> Stale | None:
        self._silence()
        confirmed = self._now()
        settled = self.ledger.renew(self.request.key, self._token, self.request.lease_ms)
        if isinstance(settled, Stale):
            return settled
        self._confirmed = confirmed
        return None

    def _keep_renewing(self) -> None:
        started = self.clock.steady()
        while not self._ended.wait(self.request.lease_ms / 3000):
            if self.clock.steady() - started >= RENEW_FOR:
                logger.warning("lease ceiling reached; renewal stops and the claim becomes in doubt")
                return
            try:
                if (stale := self._renew()) is not None:
                    logger.warning("claim was settled by someone else while the function runs (state %s)", stale.state)
                    return
            except Exception as error:
                logger.warning("cannot renew lease; retrying: %s", error)

    def _stop_renewal(self) -> None:
        self._ended.set()
        if self._renewing is not None:
            self._renewing.join()
        self._silence()


def _settle_quietly(key: Key, settle: Callable[[], Settled]) -> None:
    """A release or doubt that was not recorded changes nothing for the caller: the lease lapses, and the claim becomes in
    doubt."""
    try:
        settled = settle()
    except Exception as error:
        logger.warning("cannot settle claim %s; it becomes in doubt when its lease lapses: %s", key.index, error)
    else:
        if isinstance(settled, Stale):
            logger.warning("claim %s was settled by someone else (state %s)", key.index, settled.state)


def _outcome(value: object) -> Outcome:
    try:
        data = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        logger.warning("the result cannot be serialized as JSON, so it is not replayed: %s", error)
        return Outcome(None, f"the result cannot be serialized as JSON: {type(error).__name__}")
    if len(data) > OUTCOME_BYTES_MAX:
        return Outcome(None, f"the outcome has {len(data)} bytes; at most {OUTCOME_BYTES_MAX} are kept")
    return Outcome(data)


def _replayed(outcome: bytes) -> Any:
    try:
        return json.loads(outcome)
    except ValueError:
        # An operator may resolve a claim with plain text.
        return outcome.decode(errors="replace")


def _is_async(fn: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None))


def _drive(steps: _Steps) -> Any:
    advance: Callable[[], Any] = lambda: next(steps)
    while True:
        try:
            step = advance()
        except StopIteration as end:
            return end.value
        advance = _after(steps, step)


def _after(steps: _Steps, step: _Call | _Sleep | _Run) -> Callable[[], Any]:
    """Carries out a step, and returns how the steps continue."""
    result = None
    try:
        match step:
            case _Sleep(seconds):
                time.sleep(seconds)
            case _Call(function) | _Run(function):
                result = function()
    except BaseException as error:
        return functools.partial(steps.throw, error)
    return functools.partial(steps.send, result)


async def _drive_async(steps: _Steps) -> Any:
    advance: Callable[[], Any] = lambda: next(steps)
    while True:
        try:
            step = advance()
        except StopIteration as end:
            return end.value
        result = None
        try:
            match step:
                case _Sleep(seconds):
                    await asyncio.sleep(seconds)
                case _Call(function):
                    result = await in_thread(function)
                case _Run(function):
                    result = await function()
        except BaseException as error:
            advance = functools.partial(steps.throw, error)
        else:
            advance = functools.partial(steps.send, result)


async def in_thread(function: Callable[[], T]) -> T:
    """Calls a function in a thread, and waits for it even if the task is cancelled: a call to a ledger must not be lost
    halfway."""
    future = asyncio.get_running_loop().run_in_executor(None, function)
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait({future})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        future.exception()
        raise cancelled
    return future.result()
