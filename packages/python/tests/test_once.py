"""`once`, in a table and through the claim API, sync and async."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ichido import (
    ClaimApi, NothingHappened, DynamoDBLedger, InDoubt, InFlight, InvalidInput, KeyReused, LeaseLost, Ledger, OutcomeNotKept,
    Unreachable, Unrecorded, once,
)
from ichido import _once
from ichido._claims import Granted, Key
from ichido._items import claim_item_key
from kit import LossyDynamo, TestTable, claims_server, drops, new_table, passes
from conftest import server_url


@pytest.fixture(params=["dynoxide", "dynamodb-local", "api"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ledger]:
    """A table on each server, and the claim API."""
    if request.param == "api":
        with claims_server("memory:", tmp_path) as (url, _):
            yield ClaimApi(url)
    else:
        with new_table(server_url(request.param)) as table:
            yield DynamoDBLedger(table.name, endpoint_url=table.url)


@pytest.fixture
def one_ledger(one_table: TestTable) -> DynamoDBLedger:
    return DynamoDBLedger(one_table.name, endpoint_url=one_table.url)


class Effect:
    """Counts how often it ran."""

    def __init__(self, result: object = None, error: BaseException | None = None) -> None:
        self.runs, self.result, self.error = 0, result, error

    def __call__(self) -> Any:
        self.runs += 1
        if self.error is not None:
            raise self.error
        return self.result

    async def awaited(self) -> Any:
        await asyncio.sleep(0)
        return self()


def test_it_runs_once_and_its_result_is_replayed(ledger: Ledger) -> None:
    effect = Effect({"id": 17, "名前": "一度", "none": None})
    assert once("order-17", effect, ledger=ledger) == effect.result
    assert once("order-17", effect, ledger=ledger) == effect.result
    assert asyncio.run(once("order-17", effect.awaited, ledger=ledger)) == effect.result
    assert effect.runs == 1
    assert once("order-18", effect, ledger=ledger) == effect.result
    assert effect.runs == 2


def test_async_functions_run_once(ledger: Ledger) -> None:
    effect = Effect([1])

    async def race() -> list[Any]:
        return await asyncio.gather(*(once("k", effect.awaited, ledger=ledger) for _ in range(8)))

    assert asyncio.run(race()) == [[1]] * 8
    assert effect.runs == 1


def test_a_key_used_for_something_else_is_detected(ledger: Ledger) -> None:
    once("k", Effect(), ledger=ledger, fingerprint="a")
    with pytest.raises(KeyReused, match="new key for a new operation"):
        once("k", Effect(), ledger=ledger, fingerprint="b")
    with pytest.raises(KeyReused):
        once("k", Effect(), ledger=ledger)


def test_a_failure_leaves_the_key_in_doubt(ledger: Ledger) -> None:
    effect = Effect(error=TimeoutError("password=hunter2"))
    with pytest.raises(InDoubt, match="may have happened") as raised:
        once("k", effect, ledger=ledger)
    assert isinstance(raised.value.__cause__, TimeoutError)
    with pytest.raises(InDoubt, match="ichido ledger resolve") as raised:
        once("k", effect, ledger=ledger)
    assert raised.value.reason == "the function failed with TimeoutError", "a message may contain a secret"
    assert raised.value.since is not None and raised.value.since.year > 2020
    assert effect.runs == 1


def test_what_did_not_happen_may_be_tried_again(ledger: Ledger) -> None:
    with pytest.raises(NothingHappened, match="card declined"):
        once("k", Effect(error=NothingHappened("card declined")), ledger=ledger)
    assert once("k", Effect("charged"), ledger=ledger) == "charged"


def test_another_caller_waits_for_the_result(ledger: Ledger) -> None:
    started, finish = threading.Event(), threading.Event()
    results: list[Any] = []

    def slow() -> str:
        started.set()
        finish.wait()
        return "slow"

    threads = [threading.Thread(target=lambda: results.append(once("k", slow, ledger=ledger)))]
    threads[0].start()
    started.wait()
    with pytest.raises(InFlight, match="call again later"):
        once("k", Effect(), ledger=ledger, wait=0)
    threads.append(threading.Thread(target=lambda: results.append(once("k", Effect("other"), ledger=ledger))))
    threads[1].start()
    finish.set()
    for thread in threads:
        thread.join()
    assert results == ["slow", "slow"]


def test_the_lease_is_renewed_while_the_function_runs(ledger: Ledger) -> None:
    renewed, renew = threading.Event(), ledger.renew
    count = 0

    def counting(*arguments: Any) -> Any:
        nonlocal count
        settled = renew(*arguments)
        count += 1
        if count == 3:
            renewed.set()
        return settled

    ledger.renew = counting  # type: ignore[method-assign]
    assert once("k", lambda: renewed.wait(60), ledger=ledger, lease=0.3) is True
    assert once("k", Effect("never called"), ledger=ledger) is True


def test_no_renewal_arrives_after_a_doubt(one_ledger: DynamoDBLedger) -> None:
    """It would end the doubt."""
    renew, started, failing, renewed = one_ledger.renew, threading.Event(), threading.Event(), threading.Event()

    def slow(*arguments: Any) -> Any:
        started.set()
        failing.wait()
        time.sleep(0.2)
        settled = renew(*arguments)
        renewed.set()
        return settled

    def fails() -> None:
        started.wait()
        failing.set()
        raise OSError

    one_ledger.renew = slow  # type: ignore[method-assign]
    with pytest.raises(InDoubt):
        once("k", fails, ledger=one_ledger, lease=0.3)
    renewed.wait()
    with pytest.raises(InDoubt, match="failed with OSError"):
        once("k", Effect(), ledger=one_ledger, wait=0)


def test_a_result_that_is_not_json_is_not_replayed(one_ledger: DynamoDBLedger, api: str) -> None:
    value = object()
    assert once("k", lambda: value, ledger=one_ledger) is value
    with pytest.raises(OutcomeNotKept, match="cannot be serialized as JSON: TypeError"):
        once("k", Effect(), ledger=one_ledger)
    # The claim API keeps JSON only, so an operator has to say what became of it.
    assert once("k", lambda: value, api=api) is value
    with pytest.raises(InDoubt, match="it was done, but its outcome was not kept"):
        once("k", Effect(), api=api)


def test_a_lost_claim_is_noticed_before_success_is_reported(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process is frozen for longer than its lease. Meanwhile an operator releases the key, and another caller runs it."""
    monkeypatch.setattr(_once._Lease, "start_renewal", lambda self: None)
    token = ""
    claim = ledger.claim

    def watched(request: Any) -> Any:
        nonlocal token
        granted = claim(request)
        if isinstance(granted, Granted):
            token = token or granted.token
        return granted

    ledger.claim = watched  # type: ignore[method-assign]

    def frozen() -> str:
        ledger.release(Key("k"), token)
        assert once("k", Effect("by another"), ledger=ledger) == "by another"
        return "mine"

    with pytest.raises(LeaseLost, match="frozen or cut off.*may have happened twice") as raised:
        once("k", frozen, ledger=ledger)
    assert (raised.value.value, raised.value.state) == ("mine", "done")
    assert raised.value.may_have_happened


def test_a_process_that_was_frozen_before_it_started_renews_first(one_ledger: DynamoDBLedger, one_table: TestTable) -> None:
    class Frozen(Effect):
        pass

    claim = one_ledger.claim

    def frozen_after_claim(request: Any) -> Any:
        granted = claim(request)
        # The wall clock shows the freeze; the steady clock of a paused machine may not.
        monkey["wall"] = 20_000
        return granted

    monkey = {"wall": 0}
    real = _once.SystemClock

    class Clock(real):  # type: ignore[valid-type,misc]
        def wall_ms(self) -> int:
            return int(super().wall_ms()) + monkey["wall"]

    one_ledger.claim = frozen_after_claim  # type: ignore[method-assign]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_once, "SystemClock", Clock)
        assert once("k", Effect("ran"), ledger=one_ledger) == "ran"
    item = one_table.item(claim_item_key(Key("k")))
    assert item is not None and item["ichido_renewals"] == {"N": "1"}

    def taken(request: Any) -> Any:
        granted = claim(request)
        one_ledger.release(request.key, request.token)
        monkey["wall"] = 40_000
        return granted

    one_ledger.claim = taken  # type: ignore[method-assign]
    monkey["wall"] = 0
    effect = Frozen()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_once, "SystemClock", Clock)
        with pytest.raises(InFlight, match="nothing was run"):
            once("k2", effect, ledger=one_ledger)
    assert effect.runs == 0


def test_lost_replies_do_not_disturb(lossy: LossyDynamo, table: TestTable) -> None:
    one = DynamoDBLedger(table.name, endpoint_url=lossy.url)
    effect = Effect("ran")
    lossy.faults = [lossy.lose_reply]
    assert once("k", effect, ledger=one) == "ran"
    assert (effect.runs, lossy.calls.count("UpdateItem")) == (1, 2), "renewed before it ran, then completed"


def test_an_outcome_that_cannot_be_recorded_is_reported(one_table: TestTable) -> None:
    with LossyDynamo(one_table.url) as lossy:
        one = DynamoDBLedger(one_table.name, endpoint_url=lossy.url, timeout=0.2)
        lossy.faults = [passes, *[drops] * 1000]
        with pytest.raises(Unrecorded, match="resolve it as done") as raised:
            once("k", Effect("ran"), ledger=one)
        assert raised.value.value == "ran"


def test_without_a_ledger_nothing_runs() -> None:
    effect = Effect()
    with pytest.raises(Unreachable, match="ichido claims"):
        once("k", effect, ledger=ClaimApi("http://127.0.0.1:9", timeout=0.1))
    assert effect.runs == 0


def test_cancelled_work_is_in_doubt_and_a_cancelled_claim_is_released(one_ledger: DynamoDBLedger) -> None:
    async def cancel_work() -> None:
        started = asyncio.Event()

        async def work() -> None:
            started.set()
            await asyncio.Event().wait()

        task = asyncio.ensure_future(once("work", work, ledger=one_ledger))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel_work())
    with pytest.raises(InDoubt, match="CancelledError"):
        once("work", Effect(), ledger=one_ledger)

    claim, claimed = one_ledger.claim, threading.Event()
    go_on = threading.Event()

    def slow_claim(request: Any) -> Any:
        granted = claim(request)
        claimed.set()
        go_on.wait()
        return granted

    async def cancel_claim() -> None:
        effect = Effect()
        one_ledger.claim = slow_claim  # type: ignore[method-assign]
        task = asyncio.ensure_future(once("claim", effect.awaited, ledger=one_ledger))
        await asyncio.to_thread(claimed.wait)
        task.cancel()
        await asyncio.sleep(0)
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert effect.runs == 0

    asyncio.run(cancel_claim())
    one_ledger.claim = claim  # type: ignore[method-assign]
    assert once("claim", Effect("free"), ledger=one_ledger, wait=0) == "free"


def test_interrupts_pass_and_leave_doubt(one_ledger: DynamoDBLedger) -> None:
    with pytest.raises(KeyboardInterrupt):
        once("k", Effect(error=KeyboardInterrupt()), ledger=one_ledger)
    with pytest.raises(InDoubt, match="KeyboardInterrupt"):
        once("k", Effect(), ledger=one_ledger)


def test_the_decorator_takes_the_key_from_the_arguments(api: str) -> None:
    runs: list[str] = []

    @once(key=lambda order: f"charge:{order['id']}", fingerprint=lambda order: str(order), api=api)
    def charge(order: dict[str, Any]) -> str:
        """Charges an order."""
        runs.append("sync")
        return f"receipt {order['id']}"

    @once(key=lambda order_id, *, note="": f"ship:{order_id}", metadata=lambda order_id, *, note="": {"note": note}, api=api)
    async def ship(order_id: int, *, note: str = "") -> str:
        runs.append("async")
        return f"shipped {order_id}"

    assert [charge({"id": 1}), charge({"id": 1}), charge({"id": 2})] == ["receipt 1", "receipt 1", "receipt 2"]
    assert charge.__doc__ == "Charges an order."
    with pytest.raises(KeyReused):
        charge({"id": 1, "amount": 5})
    assert asyncio.iscoroutinefunction(ship)
    assert asyncio.run(ship(1, note="x")) == asyncio.run(ship(1)) == "shipped 1"
    assert runs == ["sync", "sync", "async"]


def test_a_function_that_returns_an_awaitable_is_refused(one_ledger: DynamoDBLedger) -> None:
    effect = Effect("ran")
    with pytest.raises(NothingHappened, match="pass an async function"):
        once("k", lambda: effect.awaited(), ledger=one_ledger)
    assert effect.runs == 0
    assert asyncio.run(once("k", effect.awaited, ledger=one_ledger)) == "ran", "the key is free"


@pytest.mark.parametrize(("arguments", "message"), [
    ({"key": ""}, "key is empty"),
    ({"key": "k" * 1025}, "key is 1025 bytes; at most 1024"),
    ({"key": "\ud800"}, "surrogate"),
    ({"lease": 0}, "lease is 0 s"),
    ({"lease": 3601}, "lease is 3601 s"),
    ({"retention": -1}, "retention"),
    ({"fingerprint": "f" * 1025}, "fingerprint is 1025 bytes"),
    ({"metadata": {"ttl": "1"}}, "'ttl' is reserved"),
    ({"metadata": {"ichido_x": "1"}}, "reserved"),
    ({"metadata": {"x": "y" * 9000}}, "metadata is 9001 bytes"),
    ({"metadata": {"x": [1]}}, "use a string, a number"),
    ({"api": "ftp://x"}, "must start with http"),
    ({"api": "http://user:hunter2@x"}, "must not contain credentials"),
    ({"token": "t"}, "give `api` as well"),
])
def test_bad_input_is_refused_before_anything_is_sent(arguments: dict[str, Any], message: str) -> None:
    effect = Effect()
    server = {} if "token" in arguments else {"api": "http://127.0.0.1:9"}
    with pytest.raises(InvalidInput, match=message) as raised:
        once(**{"key": "k", "fn": effect, **server, **arguments})
    assert effect.runs == 0 and "hunter2" not in str(raised.value)


def test_a_table_and_the_claim_api_share_their_keys(table: TestTable, tmp_path: Path) -> None:
    direct = DynamoDBLedger(table.name, endpoint_url=table.url)
    with claims_server(table.ledger_url, tmp_path) as (url, _):
        assert once("a", Effect("direct"), ledger=direct, fingerprint="f", metadata={"n": 1}) == "direct"
        assert once("a", Effect(), api=url, fingerprint="f") == "direct"
        assert once("b", Effect("api"), api=url, fingerprint="f") == "api"
        assert once("b", Effect(), ledger=direct, fingerprint="f") == "api"
        for one, other in ((direct, ClaimApi(url)), (ClaimApi(url), direct)):
            key = f"doubt-{one!r}"
            with pytest.raises(InDoubt):
                once(key, Effect(error=OSError()), ledger=one)
            with pytest.raises(InDoubt, match="failed with OSError"):
                once(key, Effect(), ledger=other)
            with pytest.raises(KeyReused):
                once(key, Effect(), ledger=other, fingerprint="another")
            mark = f"mark-{one!r}"
            assert one.mark(mark, "01" * 16, 60_000, {"file_id": "F1"}).is_new
            seen = other.mark(mark, "02" * 16, 60_000, {})
            assert (seen.is_new, seen.metadata) == (False, {"file_id": "F1"}) and seen.first_seen > 1_700_000_000
