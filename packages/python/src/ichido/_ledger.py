"""What a ledger does, and which one is used by default."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from typing import Protocol

from ._api import ClaimApi
from ._claims import Claim, ClaimRequest, Key, Mark, Outcome, Settled
from ._digests import Scalar
from ._dynamodb import DynamoDBLedger
from .errors import InvalidInput


class Ledger(Protocol):
    """Where claims and marks are kept: `DynamoDBLedger` or `ClaimApi`. Every call may be made from any thread."""

    def claim(self, request: ClaimRequest) -> Claim: ...

    def renew(self, key: Key, token: str, lease_ms: int) -> Settled: ...

    def complete(self, key: Key, token: str, outcome: Outcome) -> Settled: ...

    def release(self, key: Key, token: str) -> Settled: ...

    def doubt(self, key: Key, token: str, reason: str) -> Settled: ...

    def mark(self, key: str, nonce: str, retention_ms: int, metadata: Mapping[str, Scalar]) -> Mark: ...


def ledger_for(ledger: Ledger | None, api: str | None, token: str | None) -> Ledger:
    """The ledger that the caller named; otherwise the claim API of `ICHIDO_URL`, otherwise the table of the environment."""
    if ledger is not None:
        if api is not None or token is not None:
            raise InvalidInput("give either `ledger`, or `api` and `token`")
        return ledger
    if api is not None or os.environ.get("ICHIDO_URL"):
        return _shared_api(api, token)
    if token is not None:
        raise InvalidInput("`token` is for the claim API; give `api` as well")
    return _shared_table(os.environ.get("DEDUP_TABLE_NAME"), os.environ.get("AWS_REGION"))


# One ledger for all calls with the same settings: it watches the leases of others, and reuses connections.
@functools.lru_cache(maxsize=16)
def _shared_api(api: str | None, token: str | None) -> ClaimApi:
    return ClaimApi(api, token)


@functools.lru_cache(maxsize=16)
def _shared_table(table: str | None, region: str | None) -> DynamoDBLedger:
    return DynamoDBLedger(table, region=region)
