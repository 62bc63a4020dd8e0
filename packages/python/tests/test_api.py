"""The claim API: what can go wrong, each as a typed error that says what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ichido import ClaimApi, InvalidInput, OlderServer, Refused, Throttled, TokenRefused, Unreachable, once
from ichido._api import retry_after_seconds
from kit import Drop, Reply, ScriptedServer, claims_server

TOKEN = "0123456789abcdef"


def claim(url: str, **more: Any) -> Any:
    return once("k", lambda: "ran", ledger=ClaimApi(url, timeout=0.5, **more))


def test_a_wrong_token_is_named(tmp_path: Path) -> None:
    with claims_server("memory:", tmp_path, ICHIDO_ADMIN_TOKEN=TOKEN) as (url, _):
        for token in (None, "hunter2-hunter2-hunter2"):
            with pytest.raises(TokenRefused, match="ICHIDO_ADMIN_TOKEN") as raised:
                claim(url, token=token)
            assert "hunter2" not in str(raised.value)
        assert claim(url, token=TOKEN) == "ran"


def test_the_environment_names_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with claims_server("memory:", tmp_path, ICHIDO_ADMIN_TOKEN=TOKEN) as (url, _):
        monkeypatch.setenv("ICHIDO_URL", url)
        monkeypatch.setenv("ICHIDO_ADMIN_TOKEN", TOKEN)
        assert once("k", lambda: "ran") == "ran"


def test_a_missing_server_is_named() -> None:
    with pytest.raises(Unreachable, match="start it with `ichido claims`, or correct the URL") as raised:
        claim("http://127.0.0.1:9")
    assert not raised.value.may_have_happened


@pytest.mark.parametrize("reply", [
    Reply(404, {"type": "/problems/no-such-page", "detail": "Not found"}),
    Reply(405, b""),
    Reply(400, {"type": "/problems/invalid", "detail": "unknown field `nonce`, expected `key`"}),
    Reply(200, b"<html>welcome</html>"),
    Reply(201, {"state": "granted"}),
    Reply(302, b"", {"Location": "http://127.0.0.1:9/"}),
], ids=["no-such-page", "no-such-method", "unknown-field", "page", "incomplete", "redirect"])
def test_an_older_server_or_another_program_is_recognised(reply: Reply) -> None:
    with ScriptedServer([reply]) as server:
        with pytest.raises(OlderServer, match="upgrade it"):
            claim(server.url)


def test_the_server_really_names_an_unknown_field(api: str) -> None:
    with pytest.raises(OlderServer, match="unknown field"):
        ClaimApi(api)._settle("renew", _key(), "00" * 16, {"from_the_future": 1})


def test_a_throttling_or_failing_server_is_named() -> None:
    with ScriptedServer(lambda _: Reply(429, b"", {"Retry-After": "1"})) as server:
        with pytest.raises(Throttled, match="retry later"):
            claim(server.url)
    with ScriptedServer(lambda _: Reply(503, {"detail": "the ledger is not available"})) as server:
        with pytest.raises(Unreachable, match="the ledger is not available"):
            claim(server.url)
        assert len(server.requests) > 1
    with ScriptedServer([Reply(500, {"detail": "AccessDenied"})]) as server:
        with pytest.raises(Refused, match="AccessDenied"):
            claim(server.url)
    with ScriptedServer([Reply(413, {"detail": "The body is too large"})]) as server:
        with pytest.raises(InvalidInput, match="too large"):
            claim(server.url)


def test_retries_repeat_the_nonce(api: str) -> None:
    with ScriptedServer([Drop(), Reply(503), Reply(409, {"type": "/problems/in-doubt", "detail": "?",
            "doubt_since": "2026-11-17T10:00:00.123456Z", "doubt_reason": "cut off"})]) as server:
        with pytest.raises(Exception, match="in doubt since 2026-11-17T10:00:00Z: cut off"):
            claim(server.url)
        assert len({request.json["nonce"] for request in server.requests}) == 1 and len(server.requests) == 3


def test_a_lost_grant_is_renewed_before_the_function_runs(api: str) -> None:
    """The reply to the claim is lost on the way; the retry is told how much of the lease is left."""
    import urllib.request
    lost: list[str] = []

    def forward(request: Any) -> Any:
        made = urllib.request.Request(api + request.path, request.body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(made, timeout=10) as response:
            reply = Reply(response.status, response.read())
        if not lost:
            lost.append(request.path)
            return Drop()
        return reply

    with ScriptedServer(forward) as server:
        assert once("k", lambda: "ran", ledger=ClaimApi(server.url), lease=0.2) == "ran"
        paths = [request.path for request in server.requests]
    assert paths[:2] == ["/v1/claims", "/v1/claims"] and paths[-1] == "/v1/claims/complete"


def test_retry_after_is_seconds_or_a_date() -> None:
    assert retry_after_seconds("5", 0) == 5
    assert retry_after_seconds("Thu, 01 Jan 1970 00:01:40 GMT", 40) == 60
    assert retry_after_seconds("Thu, 01 Jan 1970 00:00:10 GMT", 40) == 0
    assert retry_after_seconds(None, 0) == retry_after_seconds("soon", 0) == retry_after_seconds("-1", 0) == 0


def test_a_token_with_line_breaks_is_refused() -> None:
    with pytest.raises(InvalidInput, match="header") as raised:
        ClaimApi("http://127.0.0.1:1", "hunter2\r\nX: y")
    assert "hunter2" not in str(raised.value)


def _key() -> Any:
    from ichido._claims import Key
    return Key("k")
