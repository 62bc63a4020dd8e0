"""Digests that identify keys, requests and calls, exactly as the ichido binary computes them."""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import Mapping
from typing import TypeAlias

from .errors import InvalidInput

Scalar: TypeAlias = str | int | float | bool | None

KEY_BYTES_MAX = 1024
METADATA_BYTES_MAX = 8 * 1024
REASON_BYTES_MAX = 1024
OUTCOME_BYTES_MAX = 16 * 1024 * 1024
LEASE_MS_MAX = 3_600_000
RETENTION_MS_MAX = 3_660 * 86_400_000
FINGERPRINT_BYTES_MAX = 1024

CLAIMS_ROUTE = "/v1/claims"
"""The route of every claim that is made through the claim API. Claims made directly use it too: both share their keys."""

NO_FINGERPRINT = "00" * 32

_RESERVED = frozenset({"event_key", "processed_at", "ttl"})


def digest(*parts: str | bytes) -> bytes:
    """The SHA-256 of length-prefixed parts: two different lists never collide through their separators."""
    hasher = hashlib.sha256()
    for part in parts:
        data = part if isinstance(part, bytes) else part.encode()
        hasher.update(len(data).to_bytes(8, "big"))
        hasher.update(data)
    return hasher.digest()


def claim_index(tenant: str, route: str, key: str) -> str:
    return digest("claim", tenant, route, key).hex()


def mark_index(key: str) -> str:
    return digest("mark", key).hex()


def fingerprint_of(text: str | None) -> str:
    """The stored form of a caller's fingerprint, as the claim API stores it."""
    if text is None:
        return NO_FINGERPRINT
    return digest("api", checked_text("fingerprint", text, FINGERPRINT_BYTES_MAX)).hex()


def nonce_of(text: str) -> str:
    """The stored form of a nonce that a caller sent to the claim API."""
    return digest("nonce", text)[:16].hex()


def random_id() -> str:
    """A new nonce or token."""
    return secrets.token_hex(16)


def checked_text(what: str, text: str, limit: int) -> str:
    if not isinstance(text, str):
        raise InvalidInput(f"{what} must be a string, not {type(text).__name__}")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise InvalidInput(f"{what} contains half a surrogate pair, which UTF-8 cannot express") from None
    if size == 0:
        raise InvalidInput(f"{what} is empty")
    if size > limit:
        raise InvalidInput(f"{what} is {size} bytes; at most {limit} are allowed")
    return text


def checked_key(key: str) -> str:
    return checked_text("key", key, KEY_BYTES_MAX)


def checked_ms(what: str, seconds: float, limit: int) -> int:
    """A duration in whole milliseconds, within its limit."""
    ms = round(seconds * 1000) if seconds > 0 else 0
    if not 1 <= ms <= limit:
        raise InvalidInput(f"{what} is {seconds} s; it must be between 0.001 and {limit // 1000} s")
    return ms


def checked_metadata(metadata: Mapping[str, Scalar] | None) -> dict[str, Scalar]:
    pairs = dict(metadata or {})
    size = 0
    for name, value in pairs.items():
        if not isinstance(name, str) or not name:
            raise InvalidInput("a metadata name must be a string that is not empty")
        if name in _RESERVED or name.startswith("ichido_"):
            raise InvalidInput(f"metadata name {name!r} is reserved; choose another name")
        if not isinstance(value, (str, int, float, type(None))) or value in (math.inf, -math.inf) or value != value:
            raise InvalidInput(f"metadata {name!r} is a {type(value).__name__}; use a string, a number, a boolean or None")
        try:
            size += len(name.encode()) + len(_text(value).encode())
        except UnicodeEncodeError:
            raise InvalidInput(f"metadata {name!r} contains half a surrogate pair") from None
    if size > METADATA_BYTES_MAX:
        raise InvalidInput(f"metadata is {size} bytes; at most {METADATA_BYTES_MAX} are allowed")
    return pairs


def as_texts(metadata: Mapping[str, Scalar]) -> dict[str, str]:
    """Metadata where only texts are stored: in claims, and through the claim API."""
    return {name: _text(value) for name, value in metadata.items()}


def _text(value: Scalar) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)
