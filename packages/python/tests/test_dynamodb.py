"""Claims and marks in a table, on both servers, through lost replies, throttling and contention."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ichido import (
    ClockSkew, DynamoDBLedger, InvalidInput, ItemError, PermissionDenied, Refused, TableMissing, Throttled, Unreachable,
)
from ichido._claims import Applied, ClaimRequest, Doubt, Granted, Held, Key, Mark, Mismatch, Outcome, Running, Stale
from ichido._digests import random_id
from ichido._items import claim_item_key, decode_claim, encode_claim
from ichido._lease_watch import LeaseWatch, Sighting
from kit import LossyDynamo, ManualClock, TestTable, aws_error, drops, passes


def request(key: str = "k", **changes: Any) -> ClaimRequest:
    made = ClaimRequest(
        key=Key(key), fingerprint_text=None, nonce=random_id(), token=random_id(), lease_ms=30_000, retention_ms=60_000,
        metadata={"order": "17", "empty": ""},
    )
    return replace(made, **changes)


def stored(table: TestTable, key: str = "k") -> Any:
    item = table.item(claim_item_key(Key(key)))
    return None if item is None else decode_claim(item)


def ledger(table: TestTable, clock: ManualClock | None = None, url: str | None = None) -> DynamoDBLedger:
    return DynamoDBLedger(table.name, endpoint_url=url or table.url, clock=clock)


def test_a_claim_is_granted_completed_and_replayed(table: TestTable) -> None:
    one, first, other = ledger(table), request(), request()
    assert one.claim(first) == Granted(first.token, 1, 30_000, 30_000)
    assert isinstance(one.claim(other), Held)
    assert one.complete(first.key, other.token, Outcome(b"1")) == Stale("running")
    assert one.renew(first.key, first.token, 40_000) == Applied()
    assert (stored(table).renewals, stored(table).lease_ms) == (1, 40_000)
    assert one.complete(first.key, first.token, Outcome(b'{"id":17}')) == Applied()
    assert one.complete(first.key, first.token, Outcome(b"2")) == Applied(), "the first outcome stays"
    assert one.claim(other) == Outcome(b'{"id":17}')
    assert one.claim(request(fingerprint_text="another body")) == Mismatch()
    assert one.release(first.key, first.token) == Stale("done")
    assert one.renew(first.key, first.token, 1) == Stale("done")
    assert one.doubt(first.key, first.token, "late") == Stale("done")
    # What updates computed is what the encoding of the record says.
    item = table.item(claim_item_key(first.key))
    assert item == encode_claim(stored(table))


def test_an_empty_and_an_oversized_outcome_are_stored(table: TestTable) -> None:
    one = ledger(table)
    for key, outcome in (("empty", Outcome(b"")), ("large", Outcome(bytes(358_401)))):
        first = request(key)
        one.claim(first)
        assert one.complete(first.key, first.token, outcome) == Applied()
    assert one.claim(request("empty")) == Outcome(b"")
    assert one.claim(request("large")) == Outcome(None, "the outcome has 358401 bytes; a dynamodb: ledger keeps at most 358400")


def test_a_released_key_is_free_again(table: TestTable) -> None:
    one, first = ledger(table), request()
    one.claim(first)
    assert one.release(first.key, first.token) == Applied()
    assert one.release(first.key, first.token) == Stale("absent")
    assert isinstance(one.claim(request()), Granted)


def test_declared_doubt_stays_even_for_its_own_nonce(table: TestTable) -> None:
    one, first = ledger(table), request()
    one.claim(first)
    assert one.doubt(first.key, "00" * 16, "not mine") == Stale("running")
    assert one.doubt(first.key, first.token, "connection lost") == Applied()
    for asking in (first, request()):
        found = one.claim(asking)
        assert isinstance(found, Doubt) and found.describe() == "connection lost"
    assert one.complete(first.key, first.token, Outcome(b"1")) == Applied(), "the holder may still settle it"
    assert one.claim(request()) == Outcome(b"1")
    assert table.item(claim_item_key(first.key)) == encode_claim(stored(table)), "the doubt leaves no trace"


def test_a_lease_lapses_only_after_it_was_watched_for_its_full_length(table: TestTable) -> None:
    first, clock = request(), ManualClock()
    ledger(table, ManualClock(wall_ms=clock.wall - 3_600_000)).claim(first)
    watcher = ledger(table, clock)
    assert watcher.claim(request()) == Held(30_000), "the holder's clock is an hour behind, and does not count"
    clock.advance(29.9)
    assert isinstance(watcher.claim(request()), Held)
    clock.wall += 7_200_000
    assert isinstance(watcher.claim(request()), Held), "a jump of the wall clock does not count either"
    clock.advance(0.2)
    found = watcher.claim(request())
    assert isinstance(found, Doubt) and found.reason == "lease-lapsed"
    assert watcher.claim(first) == Granted(first.token, 1, 30_000, 0), "its own call must renew first"


def test_a_renewal_restarts_the_watch(table: TestTable) -> None:
    first, clock = request(), ManualClock()
    holder, watcher = ledger(table, clock), ledger(table, clock)
    holder.claim(first)
    assert isinstance(watcher.claim(request()), Held)
    clock.advance(29)
    holder.renew(first.key, first.token, 30_000)
    clock.advance(29)
    assert isinstance(watcher.claim(request()), Held)
    clock.advance(31)
    assert isinstance(watcher.claim(request()), Doubt)


def test_the_watch_is_bounded_and_forgets_the_least_recently_used() -> None:
    watch, look = LeaseWatch(bound=2), Sighting("t", 1, 0)
    watch.observe("1", look, 100)
    watch.observe("2", look, 100)
    watch.observe("1", look, 101)
    watch.observe("3", look, 102)
    assert watch.observe("1", look, 103) == 100
    assert watch.observe("2", look, 104) == 104, "its watch was restarted"


def test_expired_records_are_replaced(table: TestTable) -> None:
    clock = ManualClock()
    one, first = ledger(table, clock), request()
    one.claim(first)
    one.complete(first.key, first.token, Outcome(b"1"))
    clock.advance(59.9)
    assert one.claim(request()) == Outcome(b"1")
    clock.advance(0.2)
    again = request()
    assert one.claim(again) == Granted(again.token, 1, 30_000, 30_000)
    # A doubt expires after 30 days.
    one.doubt(again.key, again.token, "?")
    clock.advance(30 * 86_400 + 1)
    assert isinstance(one.claim(request()), Granted)


def test_a_mark_is_new_once_and_again_after_it_expired(table: TestTable) -> None:
    clock = ManualClock()
    one = ledger(table, clock)
    assert one.mark("Ev1", random_id(), 10_000, {"file_id": "F1", "size": 7, "bot": True, "none": None}) == Mark(True)
    seen = one.mark("Ev1", random_id(), 10_000, {})
    assert seen == Mark(False, 1_700_000_000, {"file_id": "F1", "size": "7", "bot": "true", "none": ""})
    assert one.mark("ichido#Ev1", random_id(), 10_000, {}).is_new, "a key of its own"
    assert not one.mark("ichido#Ev1", random_id(), 10_000, {}).is_new
    clock.advance(10)
    assert one.mark("Ev1", random_id(), 10_000, {}).is_new, "although the server has not removed it"


def test_a_lost_reply_is_not_a_duplicate(lossy: LossyDynamo, table: TestTable) -> None:
    one = ledger(table, url=lossy.url)
    lossy.faults = [lossy.lose_reply]
    assert one.mark("Ev1", random_id(), 10_000, {}).is_new
    assert lossy.calls.count("PutItem") == 2, "the call was retried"
    assert not one.mark("Ev1", random_id(), 10_000, {}).is_new

    first = request()
    lossy.faults = [lossy.lose_reply]
    assert one.claim(first) == Granted(first.token, 1, 30_000, 0), "granted, but to be renewed first"
    for settle in (
        lambda: one.renew(first.key, first.token, 30_000), lambda: one.complete(first.key, first.token, Outcome(b"1")),
    ):
        lossy.faults = [lossy.lose_reply]
        assert settle() == Applied()
    released = request("released")
    one.claim(released)
    lossy.faults = [lossy.lose_reply]
    assert one.release(released.key, released.token) == Applied()
    doubted = request("doubted")
    one.claim(doubted)
    lossy.faults = [passes, lossy.lose_reply]
    assert one.doubt(doubted.key, doubted.token, "?") == Applied()


def test_throttling_is_retried_within_a_bound(lossy: LossyDynamo, table: TestTable) -> None:
    one = ledger(table, url=lossy.url)
    throttle = aws_error("ProvisionedThroughputExceededException")
    lossy.faults = [throttle, aws_error("ThrottlingException"), aws_error("InternalServerError", 500), drops]
    assert one.mark("Ev1", random_id(), 10_000, {}).is_new
    assert len(lossy.calls) >= 5
    lossy.faults = [throttle] * 1000
    with pytest.raises(Throttled, match="retry more slowly, or raise the table's capacity") as raised:
        DynamoDBLedger(table.name, endpoint_url=lossy.url, timeout=0.3).mark("Ev2", random_id(), 10_000, {})
    assert not raised.value.may_have_happened
    lossy.faults = []
    assert one.mark("Ev2", random_id(), 10_000, {}).is_new


def test_contention_is_retried(lossy: LossyDynamo, table: TestTable) -> None:
    one, first = ledger(table, url=lossy.url), request()
    lossy.faults = [aws_error("TransactionConflictException")]
    assert isinstance(one.claim(first), Granted)
    expired = replace(stored(table), state=Running(), renewed_at=0, claimed_at=0)
    # Between the read and the takeover, another process takes the claim over.
    table.put(encode_claim(expired))
    clock = ManualClock()
    taker = ledger(table, clock, lossy.url)
    assert isinstance(taker.claim(request()), Held)
    clock.advance(31)
    other = request()

    def taken_meanwhile(_: object) -> None:
        ids = {"token": other.token, "nonce": other.nonce}
        table.put(encode_claim(replace(expired, **ids, renewed_at=clock.wall, claimed_at=clock.wall)))

    reads = [passes] if "GetItem" in lossy.calls else []
    lossy.faults = [passes, *reads, taken_meanwhile]
    assert isinstance(taker.claim(request()), Held), "only one of the two takes it over"
    assert stored(table).token == other.token


@pytest.mark.parametrize(("fault", "error", "advice"), [
    (aws_error("AccessDeniedException", message="not authorized to perform: dynamodb:PutItem"), PermissionDenied,
        "dynamodb:PutItem on table .* add the action to the policy"),
    (aws_error("UnrecognizedClientException"), PermissionDenied, "UnrecognizedClientException"),
    (aws_error("InvalidSignatureException", message="Signature expired: 20261117T1 is now earlier than 20261117T2"), ClockSkew,
        "synchronise the clock"),
    (aws_error("RequestTimeTooSkewed", 403), ClockSkew, "synchronise the clock"),
    (aws_error("ValidationException"), Refused, "ichido check"),
], ids=["permission", "client", "signature-expired", "skewed", "validation"])
def test_errors_that_do_not_pass_are_raised_at_once(
    lossy: LossyDynamo, table: TestTable, fault: Any, error: type[Exception], advice: str
) -> None:
    lossy.faults = [fault]
    with pytest.raises(error, match=advice):
        ledger(table, url=lossy.url).mark("Ev1", random_id(), 10_000, {})
    assert len(lossy.calls) == 1


def test_a_missing_table_and_a_missing_server_are_named(one_table: TestTable) -> None:
    with pytest.raises(TableMissing, match="no-such-table does not exist .*ichido ledger init"):
        DynamoDBLedger("no-such-table", endpoint_url=one_table.url, timeout=0.1).mark("Ev1", random_id(), 1, {})
    with pytest.raises(Unreachable, match="cannot reach DynamoDB") as raised:
        DynamoDBLedger("events", endpoint_url="http://127.0.0.1:9", timeout=0.1).mark("Ev1", random_id(), 1, {})
    assert not raised.value.may_have_happened, "nobody listened"


def test_no_reply_means_that_it_may_have_happened(lossy: LossyDynamo, table: TestTable) -> None:
    lossy.faults = [drops] * 1000
    with pytest.raises(Unreachable) as raised:
        DynamoDBLedger(table.name, endpoint_url=lossy.url, timeout=0.1).mark("Ev1", random_id(), 1, {})
    assert raised.value.may_have_happened


def test_without_credentials_nothing_is_sent(
    one_table: TestTable, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    with pytest.raises(PermissionDenied, match="no AWS credentials found"):
        ledger(one_table).mark("Ev1", random_id(), 1, {})


def test_an_item_of_another_format_is_neither_read_nor_granted(table: TestTable) -> None:
    one, first = ledger(table), request()
    one.claim(first)
    newer = encode_claim(stored(table)) | {"ichido_format": {"N": "3"}}
    table.put(newer)
    with pytest.raises(ItemError, match="format 3"):
        one.claim(request())
    with pytest.raises(ItemError, match="format 3"):
        one.complete(first.key, first.token, Outcome(b"1"))
    assert table.item(claim_item_key(first.key)) == newer


def test_errors_show_no_token(lossy: LossyDynamo, table: TestTable) -> None:
    one, first = ledger(table, url=lossy.url), request()
    one.claim(first)
    assert first.token not in repr(first) and first.token not in repr(one.claim(first)) + repr(stored(table))


def test_boto3_is_needed_only_for_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(InvalidInput, match=r"pip install 'ichido\[dynamodb\]'"):
        DynamoDBLedger()
