from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit import TEST_SERVERS, LossyDynamo, TestTable, claims_server, new_table


def server_url(name: str) -> str:
    url = os.environ.get(TEST_SERVERS[name])
    assert url, f"{TEST_SERVERS[name]} is not set; run `cargo xtask servers`"
    return url


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ICHIDO_URL", "ICHIDO_ADMIN_TOKEN", "DEDUP_TABLE_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")


@pytest.fixture(params=list(TEST_SERVERS))
def table(request: pytest.FixtureRequest) -> Iterator[TestTable]:
    """A new table on each of the two DynamoDB servers."""
    with new_table(server_url(request.param)) as made:
        yield made


@pytest.fixture
def one_table() -> Iterator[TestTable]:
    """A new table on the faster server, for behaviour that does not depend on the server."""
    with new_table(server_url("dynoxide")) as made:
        yield made


@pytest.fixture
def lossy(table: TestTable) -> Iterator[LossyDynamo]:
    with LossyDynamo(table.url) as proxy:
        yield proxy


@pytest.fixture
def api(tmp_path: Path) -> Iterator[str]:
    with claims_server("memory:", tmp_path) as (url, _):
        yield url
