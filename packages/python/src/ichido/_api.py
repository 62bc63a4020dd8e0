"""A ledger behind the claim API of `ichido claims`, `ichido gateway` or `ichido run`. It needs only the standard library."""

from __future__ import annotations

import email.utils
import http.client
import ipaddress
import json
import os
import socket
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from ._claims import Applied, Claim, ClaimRequest, Doubt, Granted, Held, Key, Mark, Mismatch, Outcome, Settled, Stale
from ._digests import Scalar, as_texts
from ._retry import Clock, Retry, SystemClock
from .errors import InvalidInput, OlderServer, Refused, Throttled, TokenRefused, Unreachable

DEFAULT_URL = "http://127.0.0.1:8070"
_TRY_TIMEOUT = 10.0


class ClaimApi:
    """Claims and marks through the claim API at `url`, with the server's `ICHIDO_ADMIN_TOKEN` as the token, if it has one.

    Without arguments, `ICHIDO_URL` and `ICHIDO_ADMIN_TOKEN` of the environment are used. A call is retried for up to
    `timeout` seconds.
    """

    def __init__(
        self, url: str | None = None, token: str | None = None, *, timeout: float = 30.0, clock: Clock | None = None
    ) -> None:
        self._url = _checked_url(url or os.environ.get("ICHIDO_URL") or DEFAULT_URL)
        self._headers = {"Content-Type": "application/json"}
        token = token or os.environ.get("ICHIDO_ADMIN_TOKEN")
        if token:
            if not token.isascii() or not token.isprintable():
                raise InvalidInput("the token of the claim API contains characters that a header cannot carry")
            self._headers["Authorization"] = f"Bearer {token}"
        self._retry = Retry(timeout=timeout, first_pause=0.1, longest_pause=5.0)
        self._clock = clock or SystemClock()
        # A redirect would send the token elsewhere, and a proxy does not reach this machine's loopback.
        direct = [urllib.request.ProxyHandler({})] if _is_loopback(self._url) else []
        self._opener = urllib.request.build_opener(_NoRedirect, *direct)

    def __repr__(self) -> str:
        return f"ClaimApi({self._url!r})"

    def claim(self, request: ClaimRequest) -> Claim:
        body: dict[str, object] = {
            "key": request.key.text, "nonce": request.nonce, "lease_ms": request.lease_ms,
            "retention_seconds": -(-request.retention_ms // 1000), "metadata": request.metadata,
        }
        if request.fingerprint_text is not None:
            body["fingerprint"] = request.fingerprint_text
        reply, _ = self._call("/v1/claims", body)
        match reply.status, reply.code:
            case 201, _:
                lease_ms = reply.number("lease_ms")
                left_ms = reply.number("left_ms") if "left_ms" in reply.body else lease_ms
                return Granted(
                    reply.string("token"), reply.number("attempt"), lease_ms, left_ms, reply.body.get("degraded") is True
                )
            case 200, _:
                return _outcome(reply.body)
            case 409, "in-flight":
                return Held(reply.number("retry_after_ms"), ask_again_ms=int(reply.retry_after * 1000))
            case 409, "in-doubt":
                return Doubt(_time_ms(reply.string("doubt_since")), "declared", reply.string("doubt_reason"))
            case 422, "key-reused":
                return Mismatch()
            case _:
                raise self._problem(reply)

    def renew(self, key: Key, token: str, lease_ms: int) -> Settled:
        return self._settle("renew", key, token, {"lease_ms": lease_ms})[0]

    def complete(self, key: Key, token: str, outcome: Outcome) -> Settled:
        if outcome.kept is None:
            # The API stores JSON only. Whoever asks next learns why there is no outcome.
            return self.doubt(key, token, f"it was done, but its outcome was not kept: {outcome.not_kept}")
        return self._settle("complete", key, token, {"outcome": json.loads(outcome.kept)})[0]

    def release(self, key: Key, token: str) -> Settled:
        settled, maybe_applied = self._settle("release", key, token, {})
        return Applied() if settled == Stale("absent") and maybe_applied else settled

    def doubt(self, key: Key, token: str, reason: str) -> Settled:
        return self._settle("doubt", key, token, {"reason": reason or "no reason given"})[0]

    def mark(self, key: str, nonce: str, retention_ms: int, metadata: Mapping[str, Scalar]) -> Mark:
        event = {"key": key, "nonce": nonce, "metadata": as_texts(metadata)}
        reply, _ = self._call("/v1/events/check", {"events": [event], "ttl_seconds": -(-retention_ms // 1000)})
        match reply.status, reply.body.get("results"):
            case 200, [{"is_new": bool(is_new), "degraded": bool(degraded)} as result]:
                seen = 0 if is_new else _time_ms(str(result.get("first_seen"))) // 1000
                return Mark(is_new, seen, result.get("metadata", {}), degraded)
            case 200, _:
                raise self._not_ichido("/v1/events/check")
            case _:
                raise self._problem(reply)

    def _settle(self, action: str, key: Key, token: str, more: Mapping[str, object]) -> tuple[Settled, bool]:
        reply, maybe_applied = self._call(f"/v1/claims/{action}", {"key": key.text, "token": token, **more})
        if reply.status == 200:
            return Applied(), maybe_applied
        match reply.code, reply.body.get("state"):
            case "stale-token", ("absent" | "running" | "in-doubt" | "done") as state:
                return Stale(state), maybe_applied
            case _:
                raise self._problem(reply)

    def _call(self, path: str, body: Mapping[str, object]) -> tuple[_Reply, bool]:
        """Calls until there is a reply. The body has a nonce or a token, so a retry is safe."""
        request = urllib.request.Request(self._url + path, json.dumps(body).encode(), self._headers, method="POST")
        return self._retry.call(self._clock, lambda: self._try(request, path))

    def _try(self, request: urllib.request.Request, path: str) -> _Reply:
        try:
            try:
                with self._opener.open(request, timeout=_TRY_TIMEOUT) as response:
                    status, headers, data = response.status, response.headers, response.read()
            except urllib.error.HTTPError as error:
                with error:
                    status, headers, data = error.code, error.headers, error.read()
        except (OSError, http.client.HTTPException) as error:
            cause = getattr(error, "reason", error)
            raise Unreachable(
                f"no response from the claim API at {self._url} ({cause}); start it with `ichido claims`, or correct the URL",
                may_have_happened=not isinstance(cause, (ConnectionRefusedError, socket.gaierror)),
            ) from None
        retry_after = retry_after_seconds(headers.get("Retry-After"), time.time())
        try:
            parsed: Any = json.loads(data)
        except ValueError:
            parsed = None
        body: dict[str, Any] = parsed if isinstance(parsed, dict) else {}
        reply = _Reply(self, path, status, body, retry_after)
        if status == 429:
            raise Throttled(f"the claim API at {self._url} asks for fewer requests; retry later", retry_after=retry_after)
        if status in (408, 502, 503, 504):
            raise Unreachable(
                f"the claim API at {self._url} is unavailable ({reply.detail}); retry later, with the same key",
                may_have_happened=True, retry_after=retry_after,
            )
        if status < 300 and not body:
            raise self._not_ichido(path)
        return reply

    def _problem(self, reply: _Reply) -> Exception:
        status, detail = reply.status, reply.detail
        if status in (401, 403):
            return TokenRefused(
                f"the claim API at {self._url} refused the token ({detail}); use the value of the server's ICHIDO_ADMIN_TOKEN"
            )
        if status in (301, 302, 303, 307, 308, 404, 405):
            return OlderServer(
                f"the server at {self._url} does not have POST {reply.path} (status {status}); it may be an older version of "
                "ichido, or another program: upgrade it, or correct the URL"
            )
        if status == 400 and "unknown field" in detail:
            return OlderServer(
                f"the server at {self._url} does not know a field of this request ({detail}); it is an older version of "
                "ichido: upgrade it"
            )
        if status in (400, 413, 415, 422):
            return InvalidInput(f"the claim API at {self._url} refused the request: {detail}")
        if status == 421:
            return InvalidInput(f"the claim API at {self._url} refused the Host header: {detail}; use its IP address")
        return Refused(f"the claim API at {self._url} failed with status {status}: {detail}", may_have_happened=True)

    def _not_ichido(self, path: str) -> OlderServer:
        return OlderServer(
            f"the server at {self._url} does not answer POST {path} as ichido does; it may be another version or another "
            "program: upgrade it, or correct the URL"
        )


@dataclass(frozen=True)
class _Reply:
    api: ClaimApi
    path: str
    status: int
    body: dict[str, Any]
    retry_after: float

    @property
    def code(self) -> str:
        """The last segment of a problem's type."""
        return str(self.body.get("type", "")).rsplit("/", 1)[-1]

    @property
    def detail(self) -> str:
        return str(self.body.get("detail") or f"status {self.status}")

    def string(self, name: str) -> str:
        value = self.body.get(name)
        if not isinstance(value, str):
            raise self.api._not_ichido(self.path)
        return value

    def number(self, name: str) -> int:
        value = self.body.get(name)
        if not isinstance(value, int):
            raise self.api._not_ichido(self.path)
        return value


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


def retry_after_seconds(value: str | None, now: float) -> float:
    """The pause that a Retry-After header asks for: seconds or a date. 0 if there is none, or if it is not valid."""
    if value is None:
        return 0.0
    value = value.strip()
    if value.isascii() and value.isdigit():
        return float(value)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - now)
    except (TypeError, ValueError):
        return 0.0


def _outcome(body: Mapping[str, Any]) -> Outcome:
    reason = body.get("outcome_not_kept")
    if isinstance(reason, str):
        return Outcome(None, reason)
    return Outcome(json.dumps(body.get("outcome")).encode())


def _time_ms(value: str) -> int:
    try:
        # Python 3.10 parses neither a `Z` nor fractions of other than three or six digits.
        whole = datetime.strptime(value.rstrip("Z").split(".")[0], "%Y-%m-%dT%H:%M:%S")
    except ValueError:
        return 0
    return int(whole.replace(tzinfo=timezone.utc).timestamp() * 1000)


def _checked_url(url: str) -> str:
    try:
        parts = urllib.parse.urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        valid = False
    if not valid:
        raise InvalidInput("the URL of the claim API must start with http:// or https:// and name a host")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise InvalidInput("the URL of the claim API must not contain credentials, a query or a fragment; use `token`")
    return url.rstrip("/")


def _is_loopback(url: str) -> bool:
    host = urllib.parse.urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
