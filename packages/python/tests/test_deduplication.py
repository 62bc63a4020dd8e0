"""The deduplication services: new once, through lost replies and outages."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest
from ichido import (
    ClaimApi, EventDeduplicationService, FallbackFull, HybridDeduplicationService, InvalidInput, PermissionDenied, Unreachable,
)
from ichido._claims import Mark
from ichido._digests import Scalar
from kit import LossyDynamo, ManualClock, TestTable, aws_error, claims_server, drops


class FakeTable:
    """Marks in memory, with outages on demand."""

    def __init__(self) -> None:
        self.nonces: dict[str, str] = {}
        self.failure: Exception | None = None
        self.lose_replies = False
        self.calls = 0

    def mark(self, key: str, nonce: str, retention_ms: int, metadata: Mapping[str, Scalar]) -> Mark:
        self.calls += 1
        if self.failure is not None:
            if self.lose_replies:
                self.nonces.setdefault(key, nonce)
            raise self.failure
        return Mark(self.nonces.setdefault(key, nonce) == nonce)


def hybrid(fake: FakeTable, clock: ManualClock, **more: int) -> HybridDeduplicationService:
    return HybridDeduplicationService(ledger=fake, clock=clock, **more)  # type: ignore[arg-type]


def test_an_event_is_new_once_for_all_instances(table: TestTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEDUP_TABLE_NAME", table.name)
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", table.url)
    one, other = EventDeduplicationService(), HybridDeduplicationService()
    first = one.check_and_mark_processed("Ev1", {"file_id": "F1", "user_id": "U1"})
    assert (first.is_new, first.reason, first.degraded) == (True, None, False)
    again = other.check_and_mark_processed("Ev1", {"file_id": "F2"})
    assert (again.is_new, again.reason, again.degraded) == (False, "Already processed by another instance", False)
    assert again.metadata == {"file_id": "F1", "user_id": "U1"} and again.first_seen is not None
    assert asyncio.run(other.check_and_mark_processed_async("Ev2")).is_new
    assert not asyncio.run(one.check_and_mark_processed_async("Ev2")).is_new
    item = table.item("Ev1")
    assert item is not None and int(item["ttl"]["N"]) - int(item["processed_at"]["N"]) in (21_600, 21_601)


def test_the_environment_has_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_REGION")
    ledger = EventDeduplicationService()._ledger
    assert repr(ledger) == "DynamoDBLedger('slack-classify-bot-processed-events')"
    assert ledger._table._client.meta.region_name == "us-east-1"  # type: ignore[attr-defined]


def test_items_of_other_consumers_are_duplicates(table: TestTable) -> None:
    table.put({"event_key": {"S": "Ev1"}, "processed_at": {"N": "1700000000"}, "ttl": {"N": "99999999999"}, "size": {"N": "7"}})
    service = EventDeduplicationService(table_name=table.name, endpoint_url=table.url)
    found = service.check_and_mark_processed("Ev1")
    assert (found.is_new, found.metadata) == (False, {"size": "7"})


def test_the_claim_api_may_replace_the_table(tmp_path: Path) -> None:
    with claims_server("memory:", tmp_path) as (url, _):
        service = HybridDeduplicationService(ledger=ClaimApi(url))
        assert service.check_and_mark_processed("Ev1", {"file_id": "F1"}).is_new
        assert service.check_and_mark_processed("Ev1").metadata == {"file_id": "F1"}


def test_a_lost_reply_is_not_a_duplicate(lossy: LossyDynamo, table: TestTable) -> None:
    lossy.faults = [lossy.lose_reply]
    assert EventDeduplicationService(table_name=table.name, endpoint_url=lossy.url).check_and_mark_processed("Ev1").is_new


def test_an_outage_is_bridged_from_memory_and_reported(
    lossy: LossyDynamo, table: TestTable, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    service = HybridDeduplicationService(table_name=table.name, endpoint_url=lossy.url, timeout=0.1, clock=clock)
    assert service.check_and_mark_processed("before").is_new
    # The first call of the outage is applied, although its replies are lost.
    lossy.faults = [lossy.lose_reply, *[drops] * 1000]
    result = service.check_and_mark_processed("Ev1")
    assert (result.is_new, result.degraded, service.degraded) == (True, True, True)
    assert "answering from memory" in caplog.text
    calls = len(lossy.calls)
    again = service.check_and_mark_processed("Ev1")
    assert (again.is_new, again.reason, again.degraded) == (False, "In-memory duplicate check", True)
    assert not service.check_and_mark_processed("before").is_new, "the table knows it, and so does this instance"
    assert len(lossy.calls) == calls, "the table is left alone for 60 s"

    clock.advance(61)
    lossy.faults = []
    with caplog.at_level(logging.INFO):
        assert not service.check_and_mark_processed("Ev1").is_new, "accepted during the outage, and never again"
        result = service.check_and_mark_processed("Ev2")
    assert (result.is_new, result.degraded, service.degraded) == (True, False, False)
    assert "handed over" in caplog.text and "two instances" not in caplog.text
    other = EventDeduplicationService(table_name=table.name, endpoint_url=table.url)
    assert not other.check_and_mark_processed("Ev1").is_new, "the table has it by now"


def test_the_table_is_tried_again_after_each_minute() -> None:
    fake, clock = FakeTable(), ManualClock()
    service = hybrid(fake, clock)
    fake.failure = Unreachable("down")
    for minute in range(3):
        service.check_and_mark_processed(f"a{minute}")
        service.check_and_mark_processed(f"b{minute}")
        assert fake.calls == minute + 1
        clock.advance(60)


def test_handing_over_reports_conflicts_and_continues_after_an_error(caplog: pytest.LogCaptureFixture) -> None:
    fake, clock = FakeTable(), ManualClock()
    service = hybrid(fake, clock)
    fake.failure = Unreachable("down")
    for number in range(60):
        assert service.check_and_mark_processed(f"Ev{number}").degraded
    fake.failure, fake.nonces["Ev7"] = None, "of another instance"
    clock.advance(60)
    for number in range(3):
        assert service.check_and_mark_processed(f"after{number}").is_new
    assert set(fake.nonces) >= {f"Ev{number}" for number in range(60)}
    assert caplog.text.count("two instances") == 1


def test_an_outage_during_the_handover_keeps_the_answer_of_the_table() -> None:
    fake, clock = FakeTable(), ManualClock()
    service = hybrid(fake, clock)
    fake.failure = Unreachable("down")
    service.check_and_mark_processed("Ev1")
    fake.failure, fake.nonces["dup"] = None, "of another instance"
    clock.advance(60)
    mark = fake.mark

    def fails_for_ev1(key: str, *arguments: object) -> Mark:
        if key == "Ev1":
            raise Unreachable("down again")
        return mark(key, *arguments)  # type: ignore[arg-type]

    fake.mark = fails_for_ev1  # type: ignore[method-assign]
    assert not service.check_and_mark_processed("dup").is_new
    assert service.degraded


def test_memory_is_bounded_and_expires() -> None:
    fake, clock = FakeTable(), ManualClock()
    service = hybrid(fake, clock, fallback_events_max=3)
    for number in range(10):
        service.check_and_mark_processed(f"table{number}")
    fake.failure = Unreachable("down")
    for number in range(3):
        assert service.check_and_mark_processed(f"Ev{number}").is_new
    with pytest.raises(FallbackFull, match="3 events.*fallback_events_max"):
        service.check_and_mark_processed("Ev3")
    assert not service.check_and_mark_processed("Ev0").is_new, "nothing was forgotten"
    clock.advance(6 * 3600)
    assert service.check_and_mark_processed("Ev3").is_new
    assert service.check_and_mark_processed("Ev0").is_new, "its mark would have expired"
    assert len(service._memory._accepted) + len(service._memory._in_table) <= 3


def test_events_that_were_handed_over_make_room_in_the_next_outage() -> None:
    fake, clock = FakeTable(), ManualClock()
    service = hybrid(fake, clock, fallback_events_max=3)
    for outage in range(3):
        fake.failure = Unreachable("down")
        for number in range(3):
            assert service.check_and_mark_processed(f"Ev{outage}-{number}").is_new
        with pytest.raises(FallbackFull):
            service.check_and_mark_processed(f"Ev{outage}-3")
        fake.failure = None
        clock.advance(60)
        assert service.check_and_mark_processed(f"after{outage}").is_new
    assert len(service._memory._accepted) + len(service._memory._in_table) <= 3


def test_a_missing_permission_is_no_outage(lossy: LossyDynamo, table: TestTable) -> None:
    lossy.faults = [aws_error("AccessDeniedException")]
    service = HybridDeduplicationService(table_name=table.name, endpoint_url=lossy.url)
    with pytest.raises(PermissionDenied, match="PutItem"):
        service.check_and_mark_processed("Ev1")
    assert not service.degraded
    assert service.check_and_mark_processed("Ev1").is_new


def test_one_instance_never_calls_an_event_new_twice() -> None:
    """While one thread is being told "new", the call of another one fails."""
    fake, clock = FakeTable(), ManualClock()
    mark, entered, leave = fake.mark, threading.Event(), threading.Event()

    def first_is_slow_and_second_fails(*arguments: object) -> Mark:
        if entered.is_set():
            raise Unreachable("down")
        entered.set()
        leave.wait()
        return mark(*arguments)  # type: ignore[arg-type]

    fake.mark = first_is_slow_and_second_fails  # type: ignore[method-assign]
    service = hybrid(fake, clock)
    results: list[bool] = []
    threads = [
        threading.Thread(target=lambda: results.append(service.check_and_mark_processed("Ev1").is_new)) for _ in range(2)
    ]
    threads[0].start()
    entered.wait()
    threads[1].start()
    threads[1].join(0.2)
    leave.set()
    for thread in threads:
        thread.join()
    assert sorted(results) == [False, True]


def test_bad_keys_and_metadata_are_refused() -> None:
    service = hybrid(FakeTable(), ManualClock())
    for key, metadata in (("", {}), (None, {}), ("k", {"event_key": "x"}), ("k", {"a": ["x"]}), ("k", {"": "x"})):
        with pytest.raises(InvalidInput):
            service.check_and_mark_processed(key, metadata)  # type: ignore[arg-type]
