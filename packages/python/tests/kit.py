"""Fakes and processes for the tests: a scripted HTTP server, a lossy proxy in front of DynamoDB, and the ichido binary."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

REPOSITORY = Path(__file__).resolve().parents[3]
TEST_SERVERS = {"dynoxide": "ICHIDO_TEST_DYNAMODB_URL", "dynamodb-local": "ICHIDO_TEST_DYNAMODB_LOCAL_URL"}


def wait_for(condition: Callable[[], Any], what: str, seconds: float = 60.0) -> Any:
    """Waits until a condition holds, and returns it."""
    deadline = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        time.sleep(0.02)
    return result


class ManualClock:
    """A clock that tests control. Sleeping advances it."""

    def __init__(self, wall_ms: int = 1_700_000_000_000) -> None:
        self.wall, self.now = wall_ms, 1_000.0

    def wall_ms(self) -> int:
        return self.wall

    def steady(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        self.wall += round(seconds * 1000)
        self.now += seconds


@dataclass
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Reply:
    status: int = 200
    body: Any = b""
    headers: dict[str, str] = field(default_factory=dict)
    cut: bool = False
    """Announce one byte more than there is, then close the connection."""


class Drop:
    """Close the connection without a response."""


class ScriptedServer:
    """An HTTP server that replies as the script says: a function of the request, or a list of replies in order."""

    def __init__(self, script: Callable[[Request], Reply | Drop] | list[Reply | Drop]) -> None:
        self.requests: list[Request] = []
        self._lock = threading.Lock()
        self._script = script if callable(script) else self._next(list(script))
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                if self.headers.get("Transfer-Encoding") == "chunked":
                    body = b""
                    while size := int(self.rfile.readline(), 16):
                        body += self.rfile.read(size + 2)[:-2]
                    self.rfile.readline()
                else:
                    body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                request = Request(self.command, self.path, {k.lower(): v for k, v in self.headers.items()}, body)
                with outer._lock:
                    outer.requests.append(request)
                reply = outer._script(request)
                if isinstance(reply, Drop):
                    self.close_connection = True
                    return
                data = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
                headers = dict(reply.headers)
                if not isinstance(reply.body, bytes):
                    headers.setdefault("Content-Type", "application/json")
                self.send_response(reply.status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(data) + reply.cut))
                self.end_headers()
                self.wfile.write(data)
                self.close_connection = self.close_connection or reply.cut

            do_GET = do_PATCH = do_PUT = do_DELETE = do_POST

            def log_message(self, *_: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: Any) -> None:
                pass

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    @staticmethod
    def _next(replies: list[Reply | Drop]) -> Callable[[Request], Reply | Drop]:
        return lambda _: replies.pop(0)

    def __enter__(self) -> ScriptedServer:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class LossyDynamo:
    """A proxy in front of a DynamoDB server. `faults` are applied to the next calls, in order."""

    def __init__(self, url: str) -> None:
        self.url_behind = url
        self.faults: list[Callable[[Request], Reply | Drop | None]] = []
        self.calls: list[str] = []
        self.server = ScriptedServer(self._handle)
        self.url = self.server.url

    def _handle(self, request: Request) -> Reply | Drop:
        self.calls.append(request.headers.get("x-amz-target", "").split(".")[-1])
        if self.faults and (reply := self.faults.pop(0)(request)) is not None:
            return reply
        return self.forward(request)

    def forward(self, request: Request) -> Reply:
        headers = {k: v for k, v in request.headers.items() if k not in ("host", "content-length", "connection")}
        behind = urllib.request.Request(self.url_behind + request.path, request.body, headers, method="POST")
        try:
            with urllib.request.urlopen(behind, timeout=30) as response:
                return Reply(response.status, response.read(), {"Content-Type": "application/x-amz-json-1.0"})
        except urllib.error.HTTPError as error:
            return Reply(error.code, error.read(), {"Content-Type": "application/x-amz-json-1.0"})

    def lose_reply(self, request: Request) -> Drop:
        self.forward(request)
        return Drop()

    def __enter__(self) -> LossyDynamo:
        return self

    def __exit__(self, *_: object) -> None:
        self.server.__exit__()


def passes(_: Request) -> None:
    return None


def drops(_: Request) -> Drop:
    return Drop()


def aws_error(code: str, status: int = 400, message: str = "as scripted") -> Callable[[Request], Reply]:
    body = json.dumps({"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": message}).encode()
    return lambda _: Reply(status, body, {"Content-Type": "application/x-amz-json-1.0"})


def client(url: str) -> Any:
    config = Config(connect_timeout=1, read_timeout=10, retries={"total_max_attempts": 1})
    return boto3.session.Session().client("dynamodb", region_name="us-east-1", endpoint_url=url, config=config)


@dataclass
class TestTable:
    __test__ = False
    name: str
    url: str
    boto: Any

    def item(self, event_key: str) -> dict[str, Any] | None:
        found: dict[str, Any] = self.boto.get_item(
            TableName=self.name, Key={"event_key": {"S": event_key}}, ConsistentRead=True
        )
        return found.get("Item")

    def put(self, item: dict[str, Any]) -> None:
        self.boto.put_item(TableName=self.name, Item=item)

    @property
    def ledger_url(self) -> str:
        return f"dynamodb://{self.name}?region=us-east-1&endpoint={self.url}"


@contextmanager
def new_table(url: str) -> Iterator[TestTable]:
    boto, name = client(url), f"py-{uuid.uuid4().hex}"
    boto.create_table(
        TableName=name,
        AttributeDefinitions=[{"AttributeName": "event_key", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "event_key", "KeyType": "HASH"}],
        # DynamoDB Local limits the sum of all tables, and throttles none.
        ProvisionedThroughput={"ReadCapacityUnits": 1, "WriteCapacityUnits": 1},
    )
    try:
        yield TestTable(name, url, boto)
    finally:
        boto.delete_table(TableName=name)


def binary() -> Path:
    """The ichido binary: ICHIDO_TEST_BINARY, or what the workspace has built."""
    candidates = [os.environ.get("ICHIDO_TEST_BINARY"), *(REPOSITORY / f"target/{kind}/ichido" for kind in ("release", "debug"))]
    found = next((Path(path) for path in candidates if path and Path(path).exists()), None)
    assert found is not None, "build ichido, or set ICHIDO_TEST_BINARY"
    return found


@contextmanager
def ichido(command: str, *arguments: str, directory: Path, **environment: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A process of ichido that listens; yields its URL and the process."""
    process = subprocess.Popen(
        [binary(), command, *arguments], cwd=directory, text=True, env=os.environ | environment, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if found := re.search(r"listening on (http://[\d.:]+)", line):
                break
        else:
            raise AssertionError(f"ichido {command} did not start")
        # Keeps the pipe from filling up.
        threading.Thread(target=process.stderr.read, daemon=True).start()
        yield found[1], process
    finally:
        process.kill()
        process.wait()


@contextmanager
def claims_server(
    ledger: str, directory: Path, *, listen: str = "127.0.0.1:0", **environment: str
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """`ichido claims`, on a free port unless told otherwise."""
    with ichido("claims", "--ledger", ledger, "--listen", listen, directory=directory, **environment) as running:
        yield running
