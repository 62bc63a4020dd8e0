"""Ids of usage records, keys of batches, and names of spool files, exactly as the ichido binary computes them."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable
from datetime import date, datetime, timezone
from typing import Literal

from .errors import InvalidInput

ID_BYTES_MAX = 255


def source_event_id(
    *,
    usage_date: str | date,
    provider: str,
    model: str,
    app_id: str | None = None,
    user_id: str | None = None,
    scheme: Literal["sorted", "fixed-order"] = "sorted",
) -> str:
    """The id that a usage record is deduplicated by: `dify-{usage_date}-{provider}-{model}-{hash}`.

    It depends on what the record covers and on none of its figures, so the same usage sent again has the same id.
    """
    day = _day(usage_date)
    app_id, user_id = ("" if value is None else value for value in (app_id, user_id))
    values = {"provider": provider, "model": model, "app_id": app_id, "user_id": user_id}
    for name, value in values.items():
        _check_value(name, value)
    parts = [day, *values.values()]
    if scheme == "sorted":
        parts.sort(key=_by_utf16)
    elif scheme != "fixed-order":
        raise InvalidInput("scheme must be 'sorted' or 'fixed-order'")
    digits = hashlib.sha256("|".join(parts).encode()).hexdigest()[:12]
    event_id = f"dify-{day}-{provider}-{model}-{digits}"
    size = len(event_id.encode())
    if size > ID_BYTES_MAX:
        raise InvalidInput(f"source_event_id: would have {size} bytes, but the limit is {ID_BYTES_MAX}")
    return event_id


def batch_key(ids: Iterable[str]) -> str:
    """The key of a batch: its record ids, sorted as JavaScript sorts and joined with commas, as a SHA-256 in lower-case hex.

    An empty batch has an empty key.
    """
    if isinstance(ids, str):
        raise InvalidInput("batch_key needs a list of ids, not one string")
    try:
        ordered = sorted(ids, key=_by_utf16)
        return hashlib.sha256(",".join(ordered).encode()).hexdigest() if ordered else ""
    except UnicodeEncodeError:
        raise InvalidInput("an id contains half a surrogate pair, which UTF-8 cannot express") from None


def spool_file_name(
    at: datetime, key: str, *, prefix: Literal["spool", "failed"] = "spool", copy: int = 1, gzip: bool = False
) -> str:
    """The name of a batch on disk: `spool_20250118T120530Z_a3f2e1b9c4d5.json`.

    `at` is the time of the first attempt (spool) or of the move (failed), and `key` the key of the batch. `copy` tells apart
    batches whose names would be equal otherwise.
    """
    if at.tzinfo is None:
        raise InvalidInput("at has no time zone; use datetime.now(timezone.utc)")
    if copy < 1:
        raise InvalidInput("copy must be at least 1")
    start = re.match("[A-Za-z0-9]{0,12}", key)
    short = (start.group() if start else "") or "none"
    suffix = (f"_{copy}" if copy > 1 else "") + ".json" + (".gz" if gzip else "")
    return f"{prefix}_{at.astimezone(timezone.utc):%Y%m%dT%H%M%SZ}_{short}{suffix}"


def _day(usage_date: str | date) -> str:
    if isinstance(usage_date, datetime):
        raise InvalidInput("usage_date: must be a date without a time; convert it in the time zone of the usage")
    if isinstance(usage_date, date):
        return usage_date.isoformat()
    if isinstance(usage_date, str) and re.fullmatch("[0-9]{4}-[0-9]{2}-[0-9]{2}", usage_date):
        try:
            return date.fromisoformat(usage_date).isoformat()
        except ValueError:
            pass
    raise InvalidInput("usage_date: must be a date such as 2025-11-29")


def _check_value(name: str, value: object) -> None:
    if not isinstance(value, str):
        raise InvalidInput(f"{name}: must be a string, not {type(value).__name__}")
    if name in ("provider", "model") and not value:
        raise InvalidInput(f"{name}: must not be empty")
    if any(unicodedata.category(char) in ("Cc", "Zl", "Zp", "Cs") for char in value):
        raise InvalidInput(f"{name}: must not contain control characters or line separators")
    if "|" in value:
        raise InvalidInput(f"{name}: must not contain '|', because ids would be ambiguous")


def _by_utf16(value: str) -> bytes:
    """Sorts as JavaScript does, by UTF-16 code unit."""
    return value.encode("utf-16-be", "surrogatepass")
