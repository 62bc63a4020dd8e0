"""Retries with one Idempotency-Key per operation, for httpx (sync and async) and requests."""

from __future__ import annotations

import asyncio
import io
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import requests
from ichido import CallerChanged, InDoubt, InFlight, KeyReused, OutcomeNotKept, Unanswered
from ichido._http import Operation, RetryPolicy
from ichido.httpx import IdempotentTransport
from ichido.requests import IdempotentAdapter
from kit import Drop, Reply, Request, ScriptedServer, ichido

POLICY = RetryPolicy(timeout=30, first_pause=0.01, longest_pause=0.05)
IMPATIENT = RetryPolicy(timeout=0.05, first_pause=0.02, longest_pause=0.02)


@dataclass
class Answer:
    status: int
    body: bytes


Send = Callable[..., Answer]


def with_httpx(policy: RetryPolicy, url: str, method: str = "POST", **more: Any) -> Answer:
    with httpx.Client(transport=IdempotentTransport(policy=policy)) as client:
        response = client.request(method, url, **{"content": b"body", **more})
        return Answer(response.status_code, response.content)


def with_async_httpx(policy: RetryPolicy, url: str, method: str = "POST", **more: Any) -> Answer:
    async def send() -> Answer:
        async with httpx.AsyncClient(transport=IdempotentTransport(policy=policy)) as client:
            response = await client.request(method, url, **{"content": b"body", **more})
            return Answer(response.status_code, response.content)

    return asyncio.run(send())


def with_requests(policy: RetryPolicy, url: str, method: str = "POST", **more: Any) -> Answer:
    with requests.Session() as session:
        session.mount("http://", IdempotentAdapter(policy=policy))
        response = session.request(method, url, **{"data": more.pop("content", b"body"), **more})
        return Answer(response.status_code, response.content)


@pytest.fixture(params=[with_httpx, with_async_httpx, with_requests], ids=lambda send: send.__name__)
def send(request: pytest.FixtureRequest) -> Send:
    return request.param  # type: ignore[no-any-return]


def problem(status: int, code: str, **headers: str) -> Reply:
    body = {"type": f"/.well-known/idempotency/{code}", "title": code, "status": status, "detail": "as scripted"}
    return Reply(status, body, {"Content-Type": "application/problem+json", **headers})


def test_all_retries_of_an_operation_have_one_key(send: Send) -> None:
    replies: list[Reply | Drop] = [
        Drop(), problem(503, "ledger-unavailable"), problem(502, "answer-lost"), Reply(429), Reply(504),
        problem(500, "handler-failed"), problem(400, "body-broken"), Reply(500, b"", {"x-should-retry": "true"}),
        Reply(201, b"half", cut=True), Reply(201, b"created"),
    ]
    with ScriptedServer(replies) as server:
        assert send(POLICY, server.url) == Answer(201, b"created")
        keys = {request.headers["idempotency-key"] for request in server.requests}
        assert len(server.requests) == 10 and len(keys) == 1
        assert keys.pop().startswith('"') and {request.body for request in server.requests} == {b"body"}


def test_post_and_patch_have_a_key_each_and_other_methods_have_none(send: Send) -> None:
    with ScriptedServer([Reply(201), Reply(201), Reply(503), Reply(503), Reply(503)]) as server:
        send(POLICY, server.url)
        send(POLICY, server.url, "PATCH")
        for method in ("GET", "PUT", "DELETE"):
            assert send(POLICY, server.url, method).status == 503, "a request without a key is not retried"
        keys = [request.headers.get("idempotency-key") for request in server.requests]
        assert keys[0] and keys[1] and keys[0] != keys[1] and keys[2:] == [None] * 3


def test_the_callers_own_key_is_kept(send: Send) -> None:
    with ScriptedServer([Drop(), Reply(200)]) as server:
        send(POLICY, server.url, headers={"Idempotency-Key": "order-17"})
        assert [request.headers["idempotency-key"] for request in server.requests] == ["order-17"] * 2


def test_it_waits_while_the_first_request_runs(send: Send) -> None:
    with ScriptedServer([problem(409, "in-flight", **{"Retry-After": "1"}), Reply(201, b"created")]) as server:
        assert send(POLICY, server.url).status == 201
    with ScriptedServer(lambda _: problem(409, "in-flight", **{"Retry-After": "1"})) as server:
        with pytest.raises(InFlight, match="still running") as raised:
            send(IMPATIENT, server.url)
        assert raised.value.retry_after == 1.0 and len(server.requests) == 1


@pytest.mark.parametrize(("reply", "error"), [
    (problem(409, "in-doubt"), InDoubt),
    (problem(422, "key-reused"), KeyReused),
    (problem(409, "caller-changed"), CallerChanged),
    (problem(409, "answer-not-kept"), OutcomeNotKept),
    (Reply(422, {"type": "invalid_request", "code": "idempotency_conflict", "message": "other body"}), KeyReused),
], ids=["in-doubt", "key-reused", "caller-changed", "answer-not-kept", "acp"])
def test_what_a_retry_cannot_change_is_a_typed_error(send: Send, reply: Reply, error: type[Exception]) -> None:
    with ScriptedServer([reply]) as server:
        with pytest.raises(error) as raised:
            send(POLICY, server.url, headers={"Idempotency-Key": "k"})
        assert raised.value.key == "k"  # type: ignore[attr-defined]
        assert len(server.requests) == 1


def test_replayed_and_other_responses_are_returned(send: Send) -> None:
    for reply in (
        Reply(503, b"first", {"Idempotency-Replayed": "true"}), Reply(503, b"first", {"Idempotent-Replayed": "true"}),
        Reply(500, b"mine"), Reply(409, b"mine"), Reply(422, b"{}"),
        Reply(503, b"no", {"x-should-retry": "false"}), problem(400, "key-invalid"), problem(413, "body-too-large"),
    ):
        with ScriptedServer([reply]) as server:
            assert send(POLICY, server.url).status == reply.status


def test_without_a_response_it_says_whether_it_may_have_happened(send: Send) -> None:
    with ScriptedServer(lambda _: Drop()) as server:
        with pytest.raises(Unanswered, match="may have taken effect.*same Idempotency-Key") as raised:
            send(IMPATIENT, server.url)
        assert raised.value.may_have_happened
        assert raised.value.key == server.requests[0].headers["idempotency-key"]
    with pytest.raises(Unanswered, match="was not sent") as raised:
        send(IMPATIENT, "http://127.0.0.1:9")
    assert not raised.value.may_have_happened


def test_at_the_deadline_the_last_response_is_returned(send: Send) -> None:
    with ScriptedServer(lambda _: Reply(503, b"down")) as server:
        assert send(IMPATIENT, server.url) == Answer(503, b"down")
    with ScriptedServer(lambda _: Reply(503, b"down", {"Retry-After": "3600"})) as server:
        assert send(POLICY, server.url).status == 503
        assert len(server.requests) == 1, "it asks for more time than there is"


def test_a_body_that_can_be_read_once_is_sent_as_often_as_needed(send: Send) -> None:
    def parts() -> Iterator[bytes]:
        yield b"one "
        yield b"two"

    async def async_parts() -> Any:
        for part in parts():
            yield part

    body = async_parts() if send is with_async_httpx else parts()
    with ScriptedServer([Drop(), Reply(200)]) as server:
        send(POLICY, server.url, content=body)
        assert [request.body for request in server.requests] == [b"one two"] * 2


def test_requests_sends_files_again() -> None:
    with ScriptedServer([Drop(), Reply(200)]) as server:
        with_requests(POLICY, server.url, content=io.BytesIO(b"file"))
        assert [request.body for request in server.requests] == [b"file"] * 2


def test_a_key_survives_an_authentication_challenge() -> None:
    class Refresh(httpx.Auth):
        def auth_flow(self, request: httpx.Request) -> Any:
            response = yield request
            if response.status_code == 401:
                request.headers["Authorization"] = "Bearer new"
                yield request

    with ScriptedServer([Reply(401), Reply(201)]) as server:
        with httpx.Client(transport=IdempotentTransport(policy=POLICY), auth=Refresh()) as client:
            assert client.post(server.url).status_code == 201
        assert len({request.headers["idempotency-key"] for request in server.requests}) == 1


def test_streams_are_not_buffered() -> None:
    with ScriptedServer([Reply(200, b"data: 1\n\n", {"Content-Type": "text/event-stream"})]) as server:
        with httpx.Client(transport=IdempotentTransport(policy=POLICY)) as client:
            with client.stream("POST", server.url) as response:
                assert not response.is_stream_consumed
                assert list(response.iter_lines())[0] == "data: 1"


def test_pauses_grow_and_differ() -> None:
    policy = RetryPolicy(timeout=1000, first_pause=1, longest_pause=8)
    first, second = (
        [Operation(policy, "k").after_failure(OSError(), was_sent=True) for _ in range(1)] for _ in range(2)
    )
    operation = Operation(policy, "k")
    pauses = [operation.after_failure(OSError(), was_sent=True) for _ in range(8)]
    for pause, longest in zip(pauses, [1, 2, 4, 8, 8, 8, 8, 8]):
        assert longest / 2 <= pause <= longest
    assert first != second, "jitter"


def test_the_gateway_is_understood(send: Send, tmp_path: Path) -> None:
    """A real gateway in front of an API that is slow, loses its responses, or answers."""
    entered, leave = threading.Event(), threading.Event()

    def api(request: Request) -> Reply | Drop:
        if request.path == "/lost":
            return Drop()
        if request.path == "/slow":
            entered.set()
            leave.wait()
        return Reply(201, b"created")

    arguments = ("--listen", "127.0.0.1:0", "--admin", "off", "--ledger", "memory:")
    with ScriptedServer(api) as server, ichido("gateway", "--upstream", server.url, *arguments, directory=tmp_path) as (url, _):
        def ask(path: str, key: str, **more: Any) -> Answer:
            headers = {"Idempotency-Key": key, **more.pop("headers", {})}
            return send(POLICY, url + path, headers=headers, **more)

        with pytest.raises(InDoubt, match="do not use a new key"):
            ask("/lost", "k-lost")
        assert [ask("/orders", "k1"), ask("/orders", "k1")] == [Answer(201, b"created")] * 2
        with pytest.raises(KeyReused):
            ask("/orders", "k1", content=b"another body")
        with pytest.raises(CallerChanged):
            ask("/orders", "k1", headers={"Authorization": "Bearer another"})
        first = threading.Thread(target=ask, args=("/slow", "k-slow"))
        first.start()
        entered.wait()
        with pytest.raises(InFlight):
            send(IMPATIENT, url + "/slow", headers={"Idempotency-Key": "k-slow"})
        leave.set()
        assert ask("/slow", "k-slow") == Answer(201, b"created")
        first.join()
        assert [request.path for request in server.requests] == ["/lost", "/orders", "/slow"], "each ran once"
