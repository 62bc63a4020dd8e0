"""The Lambda decorator: each SQS message once, failures reported one by one."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from ichido import NothingHappened, DynamoDBLedger, InvalidInput, once, sqs_handler
from kit import TestTable

ARN = "arn:aws:sqs:us-east-1:123456789012:orders"


@pytest.fixture
def ledger(one_table: TestTable) -> DynamoDBLedger:
    return DynamoDBLedger(one_table.name, endpoint_url=one_table.url)


def record(message_id: str, body: str = "{}", group: str | None = None) -> dict[str, Any]:
    made: dict[str, Any] = {"messageId": message_id, "body": body, "eventSource": "aws:sqs", "eventSourceARN": ARN}
    if group is not None:
        made |= {"eventSourceARN": ARN + ".fifo", "attributes": {"MessageGroupId": group}}
    return made


def failures(response: dict[str, list[dict[str, str]]]) -> list[str]:
    assert list(response) == ["batchItemFailures"]
    return [failure["itemIdentifier"] for failure in response["batchItemFailures"]]


class Context:
    def __init__(self, *remaining_ms: int) -> None:
        self.remaining_ms = list(remaining_ms)

    def get_remaining_time_in_millis(self) -> int:
        return self.remaining_ms.pop(0)


def test_each_message_is_handled_once_and_failures_are_reported(ledger: DynamoDBLedger) -> None:
    handled: list[str] = []
    broken = {"m2": NothingHappened("not now"), "m3": OSError("connection lost")}

    @sqs_handler(ledger=ledger)
    def handler(message: Any) -> None:
        handled.append(message["messageId"])
        if error := broken.get(message["messageId"]):
            raise error

    batch = {"Records": [record(f"m{number}") for number in range(1, 5)]}
    assert failures(handler(batch, None)) == ["m2", "m3"]
    del broken["m2"], broken["m3"]
    assert failures(handler(batch, None)) == ["m3"], "in doubt, so it goes to the dead-letter queue"
    assert handled == ["m1", "m2", "m3", "m4", "m2"]


def test_a_key_may_come_from_the_message(ledger: DynamoDBLedger) -> None:
    handled: list[str] = []

    @sqs_handler(key=lambda message: f"event:{json.loads(message['body'])['event_id']}", ledger=ledger)
    def handler(message: Any) -> None:
        handled.append(message["messageId"])

    twins = [record("m1", '{"event_id": "Ev1"}'), record("m2", '{"event_id": "Ev1"}')]
    assert failures(handler({"Records": [*twins, record("m3", "no json")]}, None)) == ["m3"]
    assert handled == ["m1"]


def test_a_message_that_another_instance_handles_comes_back(ledger: DynamoDBLedger) -> None:
    responses: list[Any] = []

    @sqs_handler(ledger=ledger)
    def inner(message: Any) -> None:
        raise AssertionError("not while another instance handles it")

    @sqs_handler(ledger=ledger)
    def outer(message: Any) -> None:
        responses.append(inner({"Records": [message]}, None))

    assert failures(outer({"Records": [record("m1")]}, None)) == []
    assert [failures(response) for response in responses] == [["m1"]]


def test_after_a_failure_the_rest_of_a_fifo_group_waits(ledger: DynamoDBLedger) -> None:
    handled: list[str] = []

    @sqs_handler(ledger=ledger)
    def handler(message: Any) -> None:
        handled.append(message["messageId"])
        if message["messageId"] == "a1":
            raise NothingHappened

    batch = [record("a1", group="a"), record("b1", group="b"), record("a2", group="a"), record("b2", group="b")]
    assert failures(handler({"Records": batch}, None)) == ["a1", "a2"]
    assert handled == ["a1", "b1", "b2"]


def test_messages_are_not_started_when_the_invocation_is_about_to_end(ledger: DynamoDBLedger) -> None:
    handled: list[str] = []

    @sqs_handler(ledger=ledger)
    def handler(message: Any) -> None:
        handled.append(message["messageId"])

    assert failures(handler({"Records": [record("m1"), record("m2")]}, Context(5_001, 4_999))) == ["m2"]
    assert handled == ["m1"]


def test_async_functions_and_other_events(ledger: DynamoDBLedger) -> None:
    handled: list[str] = []

    @sqs_handler(ledger=ledger)
    async def handler(message: Any) -> None:
        await asyncio.sleep(0)
        handled.append(message["messageId"])

    batch = {"Records": [record("m1"), record("m1")]}
    assert failures(handler(batch, None)) == []
    assert handled == ["m1"]

    @once(key=lambda event, context: event["id"], ledger=ledger)
    def on_event(event: Any, context: Any) -> str:
        handled.append(event["id"])
        return "ok"

    assert on_event({"id": "e1"}, None) == on_event({"id": "e1"}, None) == "ok"
    assert handled == ["m1", "e1"]


@pytest.mark.parametrize("event", [{}, {"Records": [{}]}, {"Records": None}, [], {"detail-type": "x"}])
def test_an_event_that_is_no_batch_is_refused(event: Any) -> None:
    with pytest.raises(InvalidInput, match="not a batch of SQS messages"):
        sqs_handler()(lambda message: None)(event, None)


def test_without_a_ledger_every_message_comes_back() -> None:
    @sqs_handler(ledger=DynamoDBLedger("events", endpoint_url="http://127.0.0.1:9", timeout=0.05))
    def handler(message: Any) -> None:
        raise AssertionError("nothing runs without a claim")

    assert failures(handler({"Records": [record("m1"), record("m2")]}, None)) == ["m1", "m2"]
