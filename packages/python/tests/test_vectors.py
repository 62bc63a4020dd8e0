"""The shared vectors: this package writes, reads and decides exactly like the ichido binary."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from ichido import DynamoDBLedger, ItemError
from ichido._claims import (
    ClaimRequest, Done, Doubt, Granted, Held, Key, Mismatch, OtherCaller, Outcome, Record, Running, Settled, Stale, decide_claim,
)
from ichido._digests import fingerprint_of, nonce_of
from ichido._items import (
    claim_item_key, decode_claim, encode_claim, encode_mark, first_seen, mark_item_key, mark_metadata, mark_nonce,
)
from kit import REPOSITORY, ManualClock, TestTable

VECTORS = json.loads((REPOSITORY / "packages/vectors/dynamodb-items.json").read_text())
CLAIMS = {vector["name"]: vector for vector in VECTORS["claims"]}
TEXTS = {vector["digest"]: vector["text"] for vector in VECTORS["api"]["fingerprints"]} | {"00" * 32: None}


def name(vector: dict[str, Any]) -> str:
    return str(vector["name"])


def item(vector: dict[str, Any]) -> dict[str, Any]:
    """Bytes are base64 in JSON, and bytes in Python."""
    return {key: {"B": base64.b64decode(value["B"])} if "B" in value else value for key, value in vector.items()}


def outcome(vector: dict[str, Any]) -> Outcome:
    return Outcome(None, vector["tombstone"]) if "tombstone" in vector else Outcome(base64.b64decode(vector["outcome"]))


def record(vector: dict[str, Any]) -> Record:
    fields = dict(vector)
    state, key = fields.pop("state"), Key(fields.pop("key"), fields.pop("tenant"), fields.pop("route"))
    match state.pop("kind"):
        case "running":
            return Record(key=key, state=Running(), **fields)
        case "in-doubt":
            return Record(key=key, state=Doubt(**state), **fields)
        case _:
            return Record(key=key, state=Done(outcome(state), state["completed_at"]), **fields)


def test_there_are_vectors() -> None:
    assert len(VECTORS["claims"]) >= 16 and len(VECTORS["settlements"]) >= 20 and len(VECTORS["decisions"]) >= 15
    assert len(VECTORS["refused"]) >= 19 and len(VECTORS["marks"]) >= 6 and len(VECTORS["keys"]) >= 10


@pytest.mark.parametrize("vector", VECTORS["claims"], ids=name)
def test_claims(vector: dict[str, Any]) -> None:
    claim = record(json.loads(json.dumps(vector["record"])))
    assert encode_claim(claim) == item(vector["item"])
    assert decode_claim(item(vector["item"])) == claim


@pytest.mark.parametrize("vector", VECTORS["refused"], ids=name)
def test_refused_items(vector: dict[str, Any]) -> None:
    with pytest.raises(ItemError, match=vector["refused"]) as raised:
        decode_claim(item(vector["item"]))
    assert "0202" not in str(raised.value), "no token"


@pytest.mark.parametrize("vector", VECTORS["marks"], ids=name)
def test_marks(vector: dict[str, Any]) -> None:
    asked = vector["request"]
    written = encode_mark(asked["key"], asked["nonce"], vector["now"], asked["retention_ms"], asked["metadata"])
    assert written == vector["item"]
    assert mark_nonce(written) == asked["nonce"]
    assert (first_seen(written), mark_metadata(written)) == (vector["now"] // 1000, asked["metadata"])


def test_keys_and_digests() -> None:
    for vector in VECTORS["keys"]:
        if "claim" in vector:
            claim = vector["claim"]
            assert claim_item_key(Key(claim["key"], claim["tenant"], claim["route"])) == vector["event_key"]
        else:
            assert mark_item_key(vector["mark"]) == vector["event_key"]
    for vector in VECTORS["api"]["fingerprints"]:
        assert fingerprint_of(vector["text"]) == vector["digest"]
    for vector in VECTORS["api"]["nonces"]:
        assert nonce_of(vector["text"]) == vector["id"]


@pytest.mark.parametrize("vector", VECTORS["decisions"], ids=name)
def test_decisions(vector: dict[str, Any]) -> None:
    before, asked = decode_claim(item(CLAIMS[vector["before"]]["item"])), vector["request"]
    request = ClaimRequest(
        key=before.key, fingerprint_text=TEXTS[asked["fingerprint"]], nonce=asked["nonce"], token="0f" * 16, lease_ms=1,
        retention_ms=1, caller=asked["caller"],
    )
    kinds = {
        Held: "held", Granted: "granted", Doubt: "in-doubt", Outcome: "done", Mismatch: "mismatch", OtherCaller: "caller-changed",
        type(None): "granted",
    }
    assert kinds[type(decide_claim(before, request, vector["now"]))] == vector["result"]


def test_settlements_in_a_table(table: TestTable) -> None:
    boto = DynamoDBLedger(table.name, endpoint_url=table.url)._table._client
    for vector in VECTORS["settlements"]:
        before = item(CLAIMS[vector["before"]]["item"])
        table.put(before)
        ledger = DynamoDBLedger(table.name, client=boto, clock=ManualClock(vector["now"]))
        key, token = decode_claim(before).key, vector["token"]
        settled: Settled
        match vector["action"]:
            case {"renew": {"lease_ms": lease_ms}}:
                settled = ledger.renew(key, token, lease_ms)
            case {"complete": complete}:
                settled = ledger.complete(key, token, outcome(complete))
            case {"release": _}:
                settled = ledger.release(key, token)
            case {"doubt": {"reason": reason}}:
                settled = ledger.doubt(key, token, reason)
            case action:
                raise AssertionError(action)
        result = settled.state if isinstance(settled, Stale) else "applied"
        assert result == vector["result"], vector["name"]
        after = vector["after"] and item(vector["after"])
        assert table.item(before["event_key"]["S"]) == after, vector["name"]


def test_a_claim_that_an_operator_erased_is_read_by_its_hash() -> None:
    done = item(CLAIMS["done, outcome not kept"]["item"])
    digest = done["event_key"]["S"].removeprefix("ichido#")
    empty = {"NULL": True}
    erased = {**done, "ichido_key": {"S": f"erased:{digest}"}, "ichido_tenant": empty, "ichido_route": empty}
    assert isinstance(decode_claim(erased).state, Done)
    with pytest.raises(ItemError):
        decode_claim({**erased, "ichido_key": {"S": "erased:" + "0" * 64}})
