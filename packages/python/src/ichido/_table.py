"""Operations on one item of a DynamoDB table, each a single request.

Every write carries a condition. If it fails, the server returns the existing item. Some servers leave it out, Amazon's
DynamoDB Local for example; then it is read with a consistent read. The two are not one step: whoever decides based on the
item must write under a condition that still includes it.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ._items import Item, Value, text
from . import errors
from .errors import ClockSkew, Contended, InvalidInput, LedgerError, PermissionDenied, TableMissing, Throttled, Unreachable

DEFAULT_TABLE = "slack-classify-bot-processed-events"
DEFAULT_REGION = "us-east-1"

CONNECT_TIMEOUT = 1.0
READ_TIMEOUT = 1.5
"""A lost reply is noticed, and the call retried, after this time."""

_THROTTLED = frozenset({
    "ProvisionedThroughputExceededException", "ThrottlingException", "Throttling", "RequestLimitExceeded",
    "RequestThrottled", "RequestThrottledException", "TooManyRequestsException", "LimitExceededException",
})
_DENIED = frozenset({
    "AccessDeniedException", "AccessDenied", "UnrecognizedClientException", "InvalidSignatureException",
    "IncompleteSignatureException", "MissingAuthenticationTokenException", "MissingAuthenticationToken",
    "ExpiredTokenException", "InvalidClientTokenId",
})
_CONTENDED = frozenset({
    "TransactionConflictException", "ReplicatedWriteConflictException", "TransactionInProgressException",
})
_SKEWED = frozenset({"RequestTimeTooSkewed", "RequestExpired", "RequestInTheFuture"})


@dataclass(frozen=True)
class Condition:
    """A condition, and the values of all placeholders in it and in the update expression."""

    expression: str
    values: dict[str, Value] = field(default_factory=dict)


ABSENT = Condition("attribute_not_exists(event_key)")


@dataclass(frozen=True)
class Written:
    """It was written. For an update, contains the changed attributes."""

    changed: Item


@dataclass(frozen=True)
class Refused:
    """The condition failed. Contains the existing item, if there is one."""

    found: Item | None


class Table:
    """A table, and the client to access it. The client is created at the first call, and shared by all threads."""

    def __init__(self, name: str | None, region: str | None, endpoint_url: str | None, client: Any) -> None:
        self.name = name or os.environ.get("DEDUP_TABLE_NAME") or DEFAULT_TABLE
        self._region = region or os.environ.get("AWS_REGION") or DEFAULT_REGION
        self._endpoint_url = endpoint_url
        self._client: Any = client if client is not None else self._connect()
        # This distribution has no dependencies, so the names come from the packages that the client came from.
        self._errors: Any = importlib.import_module("botocore.exceptions")

    def _connect(self) -> Any:
        try:
            boto3 = importlib.import_module("boto3")
            config = importlib.import_module("botocore.config")
        except ImportError:
            raise InvalidInput(
                "DynamoDB needs boto3; install it with `pip install 'ichido[dynamodb]'`, or use the claim API"
            ) from None
        # The client does not retry: only the caller knows the deadline, and it retries.
        settings = config.Config(
            connect_timeout=CONNECT_TIMEOUT, read_timeout=READ_TIMEOUT, retries={"total_max_attempts": 1, "mode": "standard"},
        )
        session = boto3.session.Session()
        return session.client("dynamodb", region_name=self._region, endpoint_url=self._endpoint_url, config=settings)

    def get(self, event_key: str) -> Item | None:
        """The current item under a key."""
        try:
            found: Any = self._client.get_item(
                TableName=self.name, Key={"event_key": text(event_key)}, ConsistentRead=True
            )
        except Exception as error:
            failure = self._failure(error, "GetItem")
            if isinstance(failure, LedgerError):
                failure.may_have_happened = False
            raise failure from None
        return found.get("Item") or None

    def put(self, item: Item, condition: Condition) -> Written | Refused:
        """Puts an item if the condition holds."""
        return self._write("PutItem", self._client.put_item, item["event_key"]["S"], condition, Item=item)

    def update(self, event_key: str, update: str, condition: Condition) -> Written | Refused:
        """Changes an item; `update` and the condition share their values."""
        return self._write(
            "UpdateItem", self._client.update_item, event_key, condition,
            Key={"event_key": text(event_key)}, UpdateExpression=update, ReturnValues="UPDATED_NEW",
        )

    def delete(self, event_key: str, condition: Condition) -> Written | Refused:
        return self._write(
            "DeleteItem", self._client.delete_item, event_key, condition, Key={"event_key": text(event_key)}
        )

    def _write(
        self, action: str, call: Callable[..., Any], event_key: str, condition: Condition, **arguments: Any
    ) -> Written | Refused:
        arguments |= {
            "TableName": self.name,
            "ConditionExpression": condition.expression,
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
        if condition.values:
            arguments["ExpressionAttributeValues"] = condition.values
        # `ttl` is a reserved word. The server refuses names that are not used.
        if "#ttl" in condition.expression + arguments.get("UpdateExpression", ""):
            arguments["ExpressionAttributeNames"] = {"#ttl": "ttl"}
        try:
            return Written(call(**arguments).get("Attributes", {}))
        except Exception as error:
            if _code(error) != "ConditionalCheckFailedException":
                # A response may contain an item with its token, so the client's error is not kept as the cause.
                raise self._failure(error, action) from None
            returned: Item | None = getattr(error, "response", {}).get("Item")
        return Refused(returned or self.get(event_key))

    def _failure(self, error: Exception, action: str) -> Exception:
        if isinstance(error, self._errors.ClientError):
            return self._refusal(error, action)
        if isinstance(error, (self._errors.NoCredentialsError, self._errors.PartialCredentialsError)):
            return PermissionDenied(
                "no AWS credentials found; set them in the environment, a profile, or the role of the container, "
                "function or instance"
            )
        if isinstance(error, self._errors.ParamValidationError):
            return InvalidInput(f"the request to table {self.name} is not valid: {error}")
        never_sent = (
            self._errors.EndpointConnectionError, self._errors.ConnectTimeoutError, self._errors.CredentialRetrievalError,
            self._errors.ProxyConnectionError,
        )
        if isinstance(error, self._errors.BotoCoreError):
            return Unreachable(
                f"cannot reach DynamoDB in {self._region} for table {self.name} ({error}); check the network, the region "
                "and the endpoint, then retry",
                may_have_happened=not isinstance(error, never_sent),
            )
        return error

    def _refusal(self, error: Any, action: str) -> LedgerError:
        details: Any = error.response.get("Error", {})
        metadata: Any = error.response.get("ResponseMetadata", {})
        code, message = _code(error), str(details.get("Message", ""))
        status = int(metadata.get("HTTPStatusCode", 0))
        what = f"{code}: {message} (status {status}, request {metadata.get('RequestId', 'none')})"
        is_broken = status >= 500 or status == 408
        # DynamoDB always sends a code. Without one, something in between broke or made up the response.
        if not code or code.isdigit():
            return Unreachable(f"unreadable response of DynamoDB with status {status}; retry", may_have_happened=True)
        if code == "ResourceNotFoundException":
            return TableMissing(
                f"table {self.name} does not exist in {self._region}; create it with `ichido ledger init`, or set "
                "DEDUP_TABLE_NAME and AWS_REGION"
            )
        if code in _THROTTLED or status == 429:
            return Throttled(
                f"table {self.name} throttles requests ({what}); retry more slowly, or raise the table's capacity",
                may_have_happened=is_broken,
            )
        if code in _CONTENDED:
            return Contended(f"another writer changed the item at the same time ({what}); retry")
        if code in _SKEWED or (code == "InvalidSignatureException" and _mentions_time(message)):
            return ClockSkew(f"AWS refused the time of the request ({what}); synchronise the clock of this machine")
        if code in _DENIED:
            return PermissionDenied(
                f"AWS denied dynamodb:{action} on table {self.name} ({what}); add the action to the policy of this role "
                "(marks need PutItem and GetItem; claims also need UpdateItem and DeleteItem)"
            )
        if is_broken:
            return Unreachable(f"DynamoDB failed ({what}); retry", may_have_happened=True)
        return errors.Refused(
            f"DynamoDB rejected the request to table {self.name} ({what}); run `ichido check` to check its layout"
        )


def _code(error: Exception) -> str:
    response = getattr(error, "response", None)
    return str(response.get("Error", {}).get("Code", "")) if isinstance(response, dict) else ""


def _mentions_time(message: str) -> bool:
    return "Signature expired" in message or "Signature not yet current" in message
