"""AWS Lambda: each SQS message once, with partial batch responses.

For any other event, `once` is enough: `@once(key=lambda event, context: event["id"])`.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from ._ledger import Ledger
from ._once import DEFAULT_LEASE, DEFAULT_RETENTION, _is_async, once
from .errors import IchidoError, InvalidInput

logger = logging.getLogger("ichido")

SqsRecord: TypeAlias = Mapping[str, Any]
BatchResponse: TypeAlias = dict[str, list[dict[str, str]]]

RESERVE_SECONDS = 5.0


def message_key(record: SqsRecord) -> str:
    """The default key of a message. SQS delivers the same message more than once, under the same id."""
    return f"{record.get('eventSourceARN', 'sqs')}:{record['messageId']}"


def sqs_handler(
    *,
    key: Callable[[SqsRecord], str] = message_key,
    ledger: Ledger | None = None,
    api: str | None = None,
    token: str | None = None,
    lease: float = DEFAULT_LEASE,
    retention: float = DEFAULT_RETENTION,
    reserve_seconds: float = RESERVE_SECONDS,
) -> Callable[[Callable[[SqsRecord], Any]], Callable[[Mapping[str, Any], Any], BatchResponse]]:
    """Turns a function that handles one SQS message into a Lambda handler that handles each message once.

        @sqs_handler(key=lambda record: json.loads(record["body"])["event_id"])
        def handler(record): ...

    Messages that were handled, now or before, are deleted from the queue. All others are reported as failed, so SQS delivers
    them again, and moves them to the dead-letter queue in the end: those that raised an error, that are in doubt, that
    another instance is handling, and those for which less than `reserve_seconds` of the invocation were left. After a failure
    in a FIFO queue, later messages of the same group are not handled.

    Enable `ReportBatchItemFailures` on the event source mapping; without it Lambda ignores the response and deletes the
    whole batch.
    """

    def decorate(function: Callable[[SqsRecord], Any]) -> Callable[[Mapping[str, Any], Any], BatchResponse]:
        def handle(record: SqsRecord) -> None:
            work = functools.partial(function, record)
            # Another instance may take long. The message comes back anyway, and waiting costs the rest of the batch.
            result = once(key(record), work, ledger=ledger, api=api, token=token, lease=lease, retention=retention, wait=0)
            if _is_async(function):
                asyncio.run(result)

        @functools.wraps(function)
        def handler(event: Mapping[str, Any], context: Any = None) -> BatchResponse:
            failed: list[str] = []
            failed_groups: set[str] = set()
            for record in _records(event):
                group = _fifo_group(record)
                if group in failed_groups or not _succeeds(handle, record, context, reserve_seconds):
                    failed.append(record["messageId"])
                    failed_groups.update({group} if group is not None else ())
            return {"batchItemFailures": [{"itemIdentifier": message_id} for message_id in failed]}

        return handler

    return decorate


def _succeeds(handle: Callable[[SqsRecord], None], record: SqsRecord, context: Any, reserve_seconds: float) -> bool:
    remaining: Any = getattr(context, "get_remaining_time_in_millis", None)
    if remaining is not None and remaining() < reserve_seconds * 1000:
        logger.warning("not enough time left in this invocation for message %s", record["messageId"])
        return False
    try:
        handle(record)
    except IchidoError as error:
        logger.error("message %s failed: %s", record["messageId"], error)
        return False
    except Exception:
        logger.exception("message %s failed", record["messageId"])
        return False
    return True


def _records(event: Mapping[str, Any]) -> list[SqsRecord]:
    records: Any = event.get("Records") if isinstance(event, Mapping) else None
    if not isinstance(records, list) or not all(
        isinstance(record, Mapping) and isinstance(record.get("messageId"), str) for record in records
    ):
        raise InvalidInput("the event is not a batch of SQS messages; use @once for other events")
    return records


def _fifo_group(record: SqsRecord) -> str | None:
    if not str(record.get("eventSourceARN", "")).endswith(".fifo"):
        return None
    return str(record.get("attributes", {}).get("MessageGroupId", ""))
