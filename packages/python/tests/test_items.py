"""Items beyond the shared vectors: outcomes that do not fit, and marks of other consumers."""

from __future__ import annotations

from typing import Any

from ichido._claims import Outcome
from ichido._items import OUTCOME_BYTES_MAX, encode_mark, first_seen, fitting, mark_metadata


def test_an_oversized_outcome_becomes_a_tombstone() -> None:
    assert fitting(Outcome(bytes(OUTCOME_BYTES_MAX))).kept is not None
    tombstone = fitting(Outcome(bytes(OUTCOME_BYTES_MAX + 1)))
    assert tombstone == Outcome(None, "the outcome has 358401 bytes; a dynamodb: ledger keeps at most 358400")


def test_foreign_marks_are_read_as_far_as_possible() -> None:
    item: dict[str, Any] = {
        "event_key": {"S": "Ev1"}, "processed_at": {"S": "1700000000.25"}, "user_id": {"S": "U1"}, "size": {"N": "7"},
        "bot": {"BOOL": True}, "tags": {"SS": ["x"]}, "blob": {"S": "x" * 9000},
    }
    assert first_seen(item) == 1_700_000_000
    assert mark_metadata(item) == {"bot": "true", "size": "7", "user_id": "U1"}
    assert first_seen({}) == 0


def test_metadata_has_the_types_of_boto3() -> None:
    item = encode_mark("Ev1", "07" * 16, 0, 1, {"text": "x", "number": 7, "float": 0.5, "truth": True, "none": None})
    assert {name: item[name] for name in ("text", "number", "float", "truth", "none")} == {
        "text": {"S": "x"}, "number": {"N": "7"}, "float": {"N": "0.5"}, "truth": {"BOOL": True}, "none": {"NULL": True},
    }
