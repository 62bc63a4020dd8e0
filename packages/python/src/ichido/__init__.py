"""ichido makes bots, Lambdas and API clients safe to retry: each operation runs once, and every retry gets its first result.

- `once` runs a function once per key, on DynamoDB or through the claim API of ichido.
- `EventDeduplicationService` and `HybridDeduplicationService` tell new events from duplicates.
- `ichido.httpx` and `ichido.requests` retry HTTP requests with one Idempotency-Key per operation.
- `sqs_handler` makes a Lambda function that handles each SQS message once, with partial batch responses.
- `source_event_id`, `batch_key` and `spool_file_name` compute the ids of usage records.
"""

from ._api import ClaimApi
from ._dynamodb import DynamoDBLedger
from ._ledger import Ledger
from ._once import once
from .aws_lambda import sqs_handler
from .deduplication import DeduplicationResult, EventDeduplicationService, HybridDeduplicationService
from .errors import (
    CallerChanged,
    ClockSkew,
    Contended,
    FallbackFull,
    IchidoError,
    InDoubt,
    InFlight,
    InvalidInput,
    ItemError,
    KeyReused,
    LeaseLost,
    LedgerError,
    NothingHappened,
    OlderServer,
    OutcomeNotKept,
    PermissionDenied,
    Refused,
    TableMissing,
    Throttled,
    TokenRefused,
    Unanswered,
    Unreachable,
    Unrecorded,
)
from .usage import batch_key, source_event_id, spool_file_name

__version__ = "0.1.0"

__all__ = [
    "CallerChanged",
    "ClaimApi",
    "ClockSkew",
    "Contended",
    "DeduplicationResult",
    "DynamoDBLedger",
    "EventDeduplicationService",
    "FallbackFull",
    "HybridDeduplicationService",
    "IchidoError",
    "InDoubt",
    "InFlight",
    "InvalidInput",
    "ItemError",
    "KeyReused",
    "LeaseLost",
    "Ledger",
    "LedgerError",
    "NothingHappened",
    "OlderServer",
    "OutcomeNotKept",
    "PermissionDenied",
    "Refused",
    "TableMissing",
    "Throttled",
    "TokenRefused",
    "Unanswered",
    "Unreachable",
    "Unrecorded",
    "batch_key",
    "once",
    "source_event_id",
    "spool_file_name",
    "sqs_handler",
]
