"""Claims, and the rules that decide about them, as pure functions.

The rules are those of every ichido ledger: each takes the current record, a request and the time, and returns the result
and the change to write. All times are milliseconds since the epoch.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from ._digests import CLAIMS_ROUTE, claim_index, fingerprint_of

DOUBT_RETENTION_MS = 30 * 86_400_000
"""How long a claim stays in doubt before it expires."""

RENEWALS_MAX = 2**32 - 1

CurrentState: TypeAlias = Literal["absent", "running", "in-doubt", "done"]


@dataclass(frozen=True)
class Key:
    """The key of a claim within its scope."""

    text: str
    tenant: str = ""
    route: str = CLAIMS_ROUTE

    @property
    def index(self) -> str:
        return claim_index(self.tenant, self.route, self.text)


@dataclass(frozen=True)
class Outcome:
    """The result of an effect: bytes to replay, or the reason why they were not kept."""

    kept: bytes | None
    not_kept: str = ""


@dataclass(frozen=True)
class Running:
    pass


@dataclass(frozen=True)
class Doubt:
    since: int
    reason: Literal["lease-lapsed", "holder-gone", "declared"]
    text: str = ""

    def describe(self) -> str:
        match self.reason:
            case "lease-lapsed":
                return "the lease lapsed"
            case "holder-gone":
                return "the holding process is gone"
            case "declared":
                return self.text


@dataclass(frozen=True)
class Done:
    outcome: Outcome = field(repr=False)
    completed_at: int = 0


@dataclass(frozen=True)
class Expired:
    in_doubt: bool


State: TypeAlias = Running | Doubt | Done


@dataclass(frozen=True)
class Record:
    """A claim as the table stores it."""

    key: Key
    fingerprint: str
    caller: str | None
    nonce: str
    token: str = field(repr=False)
    attempt: int
    holder: Literal["process", "remote"]
    claimed_at: int
    renewed_at: int
    renewals: int
    lease_ms: int
    retention_ms: int
    metadata: dict[str, str] = field(repr=False)
    state: State

    @property
    def lease_until(self) -> int:
        return self.renewed_at + self.lease_ms

    @property
    def expires_at(self) -> int:
        """When the record expires: at the end of its retention or of its doubt."""
        match self.state:
            case Running():
                return self.lease_until + DOUBT_RETENTION_MS
            case Doubt(since=since):
                return since + DOUBT_RETENTION_MS
            case Done(completed_at=completed_at):
                return completed_at + self.retention_ms

    def phase(self, now: int) -> Running | Doubt | Done | Expired:
        """What the record means at a point in time. A lapsed lease is not stored: it follows from the time."""
        match self.state:
            case Running() if now < self.lease_until:
                return self.state
            case Running():
                phase: Doubt | Done = Doubt(self.lease_until, "lease-lapsed")
            case Doubt() | Done():
                phase = self.state
        if now < self.expires_at:
            return phase
        return Expired(in_doubt=isinstance(phase, Doubt))

    def state_at(self, now: int) -> CurrentState:
        match self.phase(now):
            case Running():
                return "running"
            case Doubt():
                return "in-doubt"
            case Done():
                return "done"
            case Expired():
                return "absent"


@dataclass(frozen=True)
class ClaimRequest:
    """A request to claim a key. The nonce identifies the call, so that its retry gets the same result."""

    key: Key
    fingerprint_text: str | None
    nonce: str
    token: str = field(repr=False)
    lease_ms: int
    retention_ms: int
    metadata: dict[str, str] = field(default_factory=dict, repr=False)
    caller: str | None = None
    holder: Literal["process", "remote"] = "process"

    @property
    def fingerprint(self) -> str:
        return fingerprint_of(self.fingerprint_text)


@dataclass(frozen=True)
class Granted:
    """Permission to run the effect. With less than half of the lease left, renew it first."""

    token: str = field(repr=False)
    attempt: int
    lease_ms: int
    left_ms: int
    degraded: bool = False


@dataclass(frozen=True)
class Held:
    """Another call holds the claim, for this long unless it renews. `ask_again_ms` is the server's advice."""

    retry_after_ms: int
    ask_again_ms: int = 0


@dataclass(frozen=True)
class Mismatch:
    pass


@dataclass(frozen=True)
class OtherCaller:
    pass


Claim: TypeAlias = Granted | Held | Doubt | Outcome | Mismatch | OtherCaller


@dataclass(frozen=True)
class Applied:
    pass


@dataclass(frozen=True)
class Stale:
    """The token is not current, and nothing was changed."""

    state: CurrentState


Settled: TypeAlias = Applied | Stale


@dataclass(frozen=True)
class Mark:
    """Whether an event is new. If not: when it was first seen, in seconds since the epoch, and its first metadata."""

    is_new: bool
    first_seen: int = 0
    metadata: dict[str, str] = field(default_factory=dict, repr=False)
    degraded: bool = False


def new_record(request: ClaimRequest, now: int, attempt: int = 1) -> Record:
    return Record(
        key=request.key, fingerprint=request.fingerprint, caller=request.caller, nonce=request.nonce, token=request.token,
        attempt=attempt, holder=request.holder, claimed_at=now, renewed_at=now, renewals=0, lease_ms=request.lease_ms,
        retention_ms=request.retention_ms, metadata=request.metadata, state=Running(),
    )


def decide_claim(record: Record, request: ClaimRequest, now: int) -> Claim | None:
    """The result of a claim on an existing record; `None` if the record has expired and the claim may replace it."""
    phase = record.phase(now)
    match phase:
        case Expired():
            return None
        case _ if request.caller is not None and request.caller != record.caller:
            return OtherCaller()
        case _ if record.fingerprint != request.fingerprint:
            return Mismatch()
        # The holder itself declared that the effect may have happened, so its own call must not run it again.
        case Doubt(reason="declared"):
            return phase
        case Running() | Doubt() if record.nonce == request.nonce:
            # A grant that is returned again after a lost reply. Others may have watched it since it was written, so
            # nobody knows what is left of its lease.
            return Granted(record.token, record.attempt, record.lease_ms, left_ms=0)
        case Running():
            return Held(record.lease_until - now)
        case Doubt():
            return phase
        case Done(outcome=outcome):
            return outcome


def decide_doubt(record: Record | None, token: str, reason: str, now: int) -> tuple[Settled, Record | None]:
    """Declares a claim in doubt. Returns the record to write, if there is one."""
    if record is None:
        return Stale("absent"), None
    state = record.state_at(now)
    if record.token != token or state in ("done", "absent"):
        return Stale(state), None
    phase = record.phase(now)
    since = phase.since if isinstance(phase, Doubt) else now
    return Applied(), replace(record, state=Doubt(since, "declared", reason))
