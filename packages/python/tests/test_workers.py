"""Several Python processes and ichido processes on one table, some of them killed with kill -9."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.request
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest
from ichido import InDoubt, once
from kit import TestTable, claims_server, wait_for

COUNT = 60

FROZEN = """
import sys
from ichido import DynamoDBLedger, LeaseLost, once

def work():
    print("running", flush=True)
    sys.stdin.readline()
    return "mine"

try:
    once("k", work, ledger=DynamoDBLedger(sys.argv[1], endpoint_url=sys.argv[2]), lease=1)
except LeaseLost as error:
    print("lost", error.state, error.value, error.paused_seconds > 1)
"""


def environment() -> dict[str, str]:
    paths = os.pathsep.join(str(path) for path in (Path(__file__).parents[1] / "src", Path(__file__).parent))
    return os.environ | {"PYTHONPATH": paths}


class Worker:
    def __init__(self, mode: str, directory: Path, target: str, number: int) -> None:
        self.log = directory / f"worker-{number}.log"
        self.log.touch()
        self.process = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("worker.py"), mode, self.log, target, str(number), str(COUNT)],
            env=environment(),
        )

    def lines(self) -> list[list[str]]:
        # A line that a killed worker has not finished does not count.
        return [line.split() for line in self.log.read_text().split("\n")[:-1]]

    def keys(self, word: str) -> list[str]:
        return [line[1] for line in self.lines() if line[0] == word]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def finish(self) -> None:
        assert self.process.wait(timeout=240) == 0, self.log.read_text()[-500:]
        assert self.lines()[-1] == ["end"]


def start(mode: str, table: TestTable, directory: Path, stack: ExitStack) -> tuple[list[Worker], list[Worker]]:
    """Workers on the table and on two ichido processes. One worker is killed, and one ichido process is killed and restarted."""
    one, _ = stack.enter_context(claims_server(table.ledger_url, directory))
    other, server = stack.enter_context(claims_server(table.ledger_url, directory))
    direct = f"{table.name}@{table.url}"
    workers = [Worker(mode, directory, target, number) for number, target in enumerate([direct, direct, direct, one, other])]
    stack.callback(lambda: [worker.kill() for worker in workers])
    wait_for(lambda: len(workers[0].lines()) > 20, "the first worker")
    workers[0].kill()
    wait_for(lambda: len(workers[4].lines()) > 5, "the last worker")
    server.kill()
    server.wait()
    stack.enter_context(claims_server(table.ledger_url, directory, listen=other.removeprefix("http://")))
    for worker in workers[1:]:
        worker.finish()
    return workers[:1], workers[1:]


def test_each_event_is_new_exactly_once(table: TestTable, tmp_path: Path) -> None:
    with ExitStack() as stack:
        killed, alive = start("marks", table, tmp_path, stack)
        new = Counter(key for worker in killed + alive for key in worker.keys("new"))
        unanswered = {key for worker in killed for key in worker.keys("ask")[-1:]}
        for key in (f"k{number}" for number in range(COUNT)):
            assert new[key] == 1 or (new[key] == 0 and key in unanswered), (key, new[key])
        assert {worker.log.name for worker in alive if worker.keys("new")}, "the others went on"


def test_each_claim_is_granted_exactly_once(table: TestTable, tmp_path: Path) -> None:
    with ExitStack() as stack:
        killed, alive = start("claims", table, tmp_path, stack)
        runs = Counter(key for worker in killed + alive for key in worker.keys("run"))
        # The killed worker held at most one claim, which nobody else may run.
        held = set(killed[0].keys("ask")[-1:]) - set(killed[0].keys("done"))
        for key in (f"k{number}" for number in range(COUNT)):
            assert runs[key] == 1 or (runs[key] == 0 and key in held), (key, runs[key])
            outcomes = {line[2] for worker in killed + alive for line in worker.lines() if line[:2] == ["done", key]}
            doubts = [worker.log.name for worker in alive if key in worker.keys("doubt")]
            assert len(outcomes) == 1 and not doubts or key in held and (not outcomes or not doubts), (key, outcomes, doubts)


def test_a_frozen_process_notices_that_its_claim_was_settled(table: TestTable, tmp_path: Path) -> None:
    """While it is frozen, its lease lapses, an operator says that nothing happened, and another caller runs it."""
    with claims_server(table.ledger_url, tmp_path) as (url, _), subprocess.Popen(
        [sys.executable, "-c", FROZEN, table.name, table.url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=environment(),
    ) as frozen:
        assert frozen.stdin is not None and frozen.stdout is not None
        assert frozen.stdout.readline() == "running\n"
        frozen.send_signal(signal.SIGSTOP)
        with pytest.raises(InDoubt, match="the lease lapsed"):
            once("k", lambda: "not yet", api=url)
        resolve = urllib.request.Request(
            f"{url}/v1/claims/resolve", b'{"key":"k","as":"absent"}', {"Content-Type": "application/json"}
        )
        urllib.request.urlopen(resolve, timeout=30).close()
        assert once("k", lambda: "by another", api=url) == "by another"
        frozen.send_signal(signal.SIGCONT)
        assert frozen.communicate("\n", timeout=60)[0] == "lost done mine True\n"
