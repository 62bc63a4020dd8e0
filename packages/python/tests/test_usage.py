"""Ids, batch keys and file names are those of the ichido binary."""

from __future__ import annotations

import json
from datetime import date, datetime, timedelta, timezone

import pytest
from ichido import InvalidInput, batch_key, source_event_id, spool_file_name
from kit import REPOSITORY

VECTORS = json.loads((REPOSITORY / "crates/usage/tests/vectors/event-ids.json").read_text())


@pytest.mark.parametrize("vector", VECTORS["source_event_ids"], ids=lambda vector: vector["name"])
def test_event_ids_match_the_vectors(vector: dict[str, object]) -> None:
    values = vector["input"]
    assert isinstance(values, dict)
    if vector.get("refused"):
        with pytest.raises(InvalidInput, match="ambiguous"):
            source_event_id(**values)
        return
    assert source_event_id(**values) == vector["sorted"]
    assert source_event_id(**values, scheme="fixed-order") == vector["fixed_order"]
    assert source_event_id(**values | {"usage_date": date.fromisoformat(values["usage_date"])}) == vector["sorted"]


@pytest.mark.parametrize("vector", VECTORS["batch_keys"], ids=lambda vector: vector["name"])
def test_batch_keys_match_the_vectors(vector: dict[str, object]) -> None:
    ids = vector["input"]
    assert isinstance(ids, list)
    assert batch_key(ids) == vector["output"]
    assert batch_key(iter(reversed(ids))) == vector["output"]


def test_ids_sort_as_in_javascript() -> None:
    # Beyond U+FFFF, the first surrogate is smaller than U+FF5E.
    assert batch_key(["\uff5e", "\U0001f600"]) == batch_key(["\U0001f600", "\uff5e"])
    import hashlib
    assert batch_key(["\uff5e", "\U0001f600"]) == hashlib.sha256("\U0001f600,\uff5e".encode()).hexdigest()


@pytest.mark.parametrize(("change", "message"), [
    ({"provider": ""}, "provider: must not be empty"),
    ({"model": "m\n"}, "model: must not contain control"),
    ({"provider": "p\u2028"}, "provider: must not contain control"),
    ({"app_id": "\0"}, "app_id: must not contain control"),
    ({"usage_date": "2025-02-30"}, "usage_date: must be a date"),
    ({"usage_date": "20251129"}, "usage_date: must be a date"),
    ({"model": "m" * 230}, "would have 261 bytes, but the limit is 255"),
    ({"app_id": 7}, "app_id: must be a string"),
    ({"usage_date": 7}, "usage_date: must be a date"),
    ({"user_id": "\ud800"}, "user_id: must not contain control"),
    ({"scheme": "v9"}, "scheme must be"),
])
def test_values_that_the_pattern_forbids_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        source_event_id(**{"usage_date": "2025-12-01", "provider": "p", "model": "m", **change})  # type: ignore[arg-type]


def test_spool_files_are_named_by_time_and_key() -> None:
    at = datetime(2025, 1, 18, 21, 5, 30, 999_000, tzinfo=timezone(timedelta(hours=9)))
    assert spool_file_name(at, "a3f2e1b9c4d5aaaaaaaa") == "spool_20250118T120530Z_a3f2e1b9c4d5.json"
    assert spool_file_name(at, "a3f2e1b9c4d5aaaaaaaa", prefix="failed", copy=2, gzip=True) == (
        "failed_20250118T120530Z_a3f2e1b9c4d5_2.json.gz"
    )
    assert spool_file_name(at, "") == "spool_20250118T120530Z_none.json"
    assert spool_file_name(at, "ab_cd") == "spool_20250118T120530Z_ab.json"
    with pytest.raises(InvalidInput, match="time zone"):
        spool_file_name(datetime(2025, 1, 18), "a")
