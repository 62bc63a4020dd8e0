"""Claims and marks as items of a DynamoDB table, in the form of the low-level client: `{"S": "text"}`, `{"N": "1"}`.

| event_key | what | attributes |
|---|---|---|
| the caller's key | a mark | processed_at, ttl, ichido_nonce, the caller's metadata |
| ichido#mark#HASH | a mark whose key starts with ichido# | the same, and ichido_key |
| ichido#HASH | a claim | ichido_format, ichido_state, ichido_token, …; ttl once it is done |

Only completed claims have a `ttl`, so DynamoDB never removes a claim that is running or in doubt. An item of another
format is refused: it is neither read nor granted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias, cast

from ._claims import RENEWALS_MAX, Done, Doubt, Key, Outcome, Record, Running
from ._digests import METADATA_BYTES_MAX, Scalar, mark_index
from .errors import ItemError

Value: TypeAlias = dict[str, Any]
Item: TypeAlias = dict[str, Value]

FORMAT: Final = 1
FORMAT_CALLER: Final = 2
"""The format of a claim with a caller. A version that does not know callers must not reveal its outcome to others."""

OUTCOME_BYTES_MAX: Final = 350 * 1024
"""Larger outcomes are replaced by a tombstone: an item holds 400 KB."""

_CLAIMS: Final = "ichido#"
_ERASED: Final = "erased:"
_ESCAPED_MARKS: Final = "ichido#mark#"


def claim_item_key(key: Key) -> str:
    return _CLAIMS + key.index


def mark_item_key(key: str) -> str:
    return _ESCAPED_MARKS + mark_index(key) if key.startswith(_CLAIMS) else key


def text(value: str) -> Value:
    """A text. An empty one is `NULL`: servers before 2020 refuse empty strings. Both are read alike."""
    return {"S": value} if value else {"NULL": True}


def number(value: int) -> Value:
    return {"N": str(value)}


def blob(value: bytes) -> Value:
    return {"B": value} if value else {"NULL": True}


def ceil_seconds(ms: int) -> int:
    """Whole seconds, rounded up so that nothing expires early."""
    return -(-ms // 1000)


def fitting(outcome: Outcome) -> Outcome:
    """An outcome as it fits into an item."""
    if outcome.kept is None or len(outcome.kept) <= OUTCOME_BYTES_MAX:
        return outcome
    size = len(outcome.kept)
    return Outcome(None, f"the outcome has {size} bytes; a dynamodb: ledger keeps at most {OUTCOME_BYTES_MAX}")


def encode_claim(record: Record) -> Item:
    item = {
        "event_key": text(claim_item_key(record.key)),
        "ichido_format": number(FORMAT if record.caller is None else FORMAT_CALLER),
        "ichido_token": text(record.token),
        "ichido_nonce": text(record.nonce),
        "ichido_fingerprint": text(record.fingerprint),
        "ichido_attempt": number(record.attempt),
        "ichido_holder": text(record.holder),
        "ichido_renewals": number(record.renewals),
        "ichido_lease_ms": number(record.lease_ms),
        "ichido_retention_ms": number(record.retention_ms),
        "ichido_retention_seconds": number(ceil_seconds(record.retention_ms)),
        "ichido_claimed_at": number(record.claimed_at),
        "ichido_renewed_at": number(record.renewed_at),
        "ichido_over_at": number(record.expires_at),
        "ichido_tenant": text(record.key.tenant),
        "ichido_route": text(record.key.route),
        "ichido_key": text(record.key.text),
        "ichido_metadata": {"M": {name: text(value) for name, value in record.metadata.items()}},
    }
    if record.caller is not None:
        item["ichido_caller"] = text(record.caller)
    match record.state:
        case Running():
            item["ichido_state"] = text("running")
        case Doubt(since, reason, detail):
            item["ichido_state"] = text("in-doubt")
            item["ichido_doubt"] = text(reason)
            item["ichido_doubt_since"] = number(since)
            item["ichido_doubt_text"] = text(detail)
        case Done(outcome, completed_at):
            item["ichido_state"] = text("done")
            item["ichido_completed_at"] = number(completed_at)
            item["ttl"] = number(ceil_seconds(record.expires_at))
            outcome = fitting(outcome)
            if outcome.kept is None:
                item["ichido_tombstone"] = text(outcome.not_kept)
            else:
                item["ichido_outcome_bytes"] = number(len(outcome.kept))
                item["ichido_outcome"] = blob(outcome.kept)
    return item


def decode_claim(item: Item) -> Record:
    return _Reader(item).record()


def encode_mark(key: str, nonce: str, now: int, retention_ms: int, metadata: Mapping[str, Scalar]) -> Item:
    item = {name: _attribute(value) for name, value in metadata.items()}
    item["event_key"] = text(mark_item_key(key))
    if item["event_key"]["S"] != key:
        item["ichido_key"] = text(key)
    item["processed_at"] = number(now // 1000)
    item["ttl"] = number(ceil_seconds(now + retention_ms))
    item["ichido_nonce"] = text(nonce)
    return item


def mark_nonce(item: Item) -> str | None:
    return cast("str | None", item.get("ichido_nonce", {}).get("S"))


def first_seen(item: Item) -> int:
    """When an event was marked, in seconds since the epoch; 0 if the item does not tell. Other consumers write it too."""
    whole = (_scalar(item.get("processed_at", {})) or "").split(".")[0]
    return int(whole) if whole.isascii() and whole.isdigit() else 0


def mark_metadata(item: Item) -> dict[str, str]:
    """Other attributes of a mark, as far as they are scalars and fit the limit."""
    pairs: dict[str, str] = {}
    left = METADATA_BYTES_MAX
    for name in sorted(item):
        value = _scalar(item[name])
        if value is None or name in ("event_key", "processed_at", "ttl") or name.startswith("ichido_"):
            continue
        size = len(name.encode()) + len(value.encode())
        if size <= left:
            left -= size
            pairs[name] = value
    return pairs


def _attribute(value: Scalar) -> Value:
    """A value of a mark's metadata, with the type that boto3's own document interface gives it."""
    if isinstance(value, str):
        return text(value)
    if isinstance(value, bool):
        return {"BOOL": value}
    return {"NULL": True} if value is None else {"N": str(value)}


def _scalar(value: Value) -> str | None:
    match value:
        case {"S": str(found)} | {"N": str(found)}:
            return found
        case {"BOOL": bool(truth)}:
            return "true" if truth else "false"
        case {"NULL": _}:
            return ""
        case _:
            return None


class _Reader:
    def __init__(self, item: Item) -> None:
        self.item = item
        self.event_key = str(item.get("event_key", {}).get("S", ""))

    def record(self) -> Record:
        self.check_format()
        return Record(
            key=self.key(),
            fingerprint=self.hex("ichido_fingerprint", 64),
            caller=self.hex("ichido_caller", 64) if "ichido_caller" in self.item else None,
            nonce=self.hex("ichido_nonce", 32),
            token=self.hex("ichido_token", 32),
            attempt=self.number("ichido_attempt", RENEWALS_MAX),
            holder=self.holder(),
            claimed_at=self.number("ichido_claimed_at"),
            renewed_at=self.number("ichido_renewed_at"),
            renewals=self.number("ichido_renewals", RENEWALS_MAX),
            lease_ms=self.number("ichido_lease_ms"),
            retention_ms=self.number("ichido_retention_ms"),
            metadata=self.metadata(),
            state=self.state(),
        )

    def check_format(self) -> None:
        found = self.item.get("ichido_format", {}).get("N")
        if found in (str(FORMAT), str(FORMAT_CALLER)):
            return
        what = "has no format number" if found is None else f"has format {found}"
        raise ItemError(
            f"item {self.event_key} {what}, but this version supports formats {FORMAT} and {FORMAT_CALLER}: another "
            "version of ichido wrote it; upgrade this package, or delete the item"
        )

    def key(self) -> Key:
        key = Key(self.text("ichido_key"), self.text("ichido_tenant"), self.text("ichido_route"))
        # Of a key that an operator erased, only the hash is left.
        is_erased = key.text.startswith(_ERASED) and _CLAIMS + key.text.removeprefix(_ERASED) == self.event_key
        if claim_item_key(key) != self.event_key and not is_erased:
            raise self.corrupt("ichido_key")
        return key

    def holder(self) -> Literal["process", "remote"]:
        match self.text("ichido_holder"):
            case "process":
                return "process"
            case "remote":
                return "remote"
            case _:
                raise self.corrupt("ichido_holder")

    def metadata(self) -> dict[str, str]:
        found = self.item.get("ichido_metadata", {}).get("M")
        if not isinstance(found, dict):
            raise self.corrupt("ichido_metadata")
        pairs = {name: self.plain("ichido_metadata", value) for name, value in found.items()}
        return pairs

    def state(self) -> Running | Doubt | Done:
        match self.text("ichido_state"):
            case "running":
                return Running()
            case "in-doubt":
                return self.doubt()
            case "done":
                return Done(self.outcome(), self.number("ichido_completed_at"))
            case _:
                raise self.corrupt("ichido_state")

    def doubt(self) -> Doubt:
        since = self.number("ichido_doubt_since")
        match self.text("ichido_doubt"):
            case "lease-lapsed":
                return Doubt(since, "lease-lapsed")
            case "holder-gone":
                return Doubt(since, "holder-gone")
            case "declared":
                return Doubt(since, "declared", self.text("ichido_doubt_text"))
            case _:
                raise self.corrupt("ichido_doubt")

    def outcome(self) -> Outcome:
        match self.item.get("ichido_outcome"), self.item.get("ichido_tombstone"):
            case {"B": found}, None:
                return Outcome(bytes(found))
            case {"NULL": _}, None:
                return Outcome(b"")
            case None, {}:
                return Outcome(None, self.text("ichido_tombstone"))
            case _:
                raise self.corrupt("ichido_outcome")

    def text(self, name: str) -> str:
        return self.plain(name, self.item.get(name, {}))

    def plain(self, name: str, value: Value) -> str:
        match value:
            case {"S": str(found)}:
                return found
            case {"NULL": _}:
                return ""
            case _:
                raise self.corrupt(name)

    def hex(self, name: str, digits: int) -> str:
        found = self.text(name).lower()
        if len(found) != digits or not set(found) <= set("0123456789abcdef"):
            raise self.corrupt(name)
        return found

    def number(self, name: str, limit: int = 2**64 - 1) -> int:
        found = self.item.get(name, {}).get("N")
        if not isinstance(found, str) or not (found.isascii() and found.isdigit()) or int(found) > limit:
            raise self.corrupt(name)
        return int(found)

    def corrupt(self, name: str) -> ItemError:
        return ItemError(
            f"item {self.event_key}: attribute {name} is missing or damaged; look at the item, and delete it once you "
            "know what became of the operation"
        )
