"""The package as users get it: types that check, and a wheel that works in an empty environment."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1]

USES = '''
import asyncio
from collections.abc import Coroutine
from typing import Any

from ichido import ClaimApi, HybridDeduplicationService, once, sqs_handler
from ichido.httpx import IdempotentTransport
from ichido.requests import IdempotentAdapter


async def work() -> int:
    return 1


@once(key=lambda order: str(order), api="http://127.0.0.1:8070")
def charge(order: int) -> str:
    return "receipt"


@once(key=lambda order: str(order))
async def ship(order: int) -> str:
    return "shipped"


@sqs_handler(key=lambda record: str(record["body"]))
def handler(record: Any) -> None: ...


text: str = once("k", lambda: "x", ledger=ClaimApi())
number: int = asyncio.run(once("k", work))
receipt: str = charge(17)
shipped: Coroutine[Any, Any, str] = ship(17)
is_new: bool = HybridDeduplicationService().check_and_mark_processed("Ev1", {"size": 7}).is_new
'''

WRONG = '''
from ichido import EventDeduplicationService, once

number: int = once("k", lambda: "x")
EventDeduplicationService().check_and_mark_processed("Ev1", {"tags": ["x"]})
'''


def mypy(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", *arguments], cwd=PACKAGE, text=True, capture_output=True, check=False
    )


def test_the_types_check(tmp_path: Path) -> None:
    uses, wrong = tmp_path / "uses.py", tmp_path / "wrong.py"
    uses.write_text(USES)
    wrong.write_text(WRONG)
    checked = mypy("-p", "ichido")
    assert checked.returncode == 0, checked.stdout
    checked = mypy(uses)
    assert checked.returncode == 0, checked.stdout
    checked = mypy(wrong)
    assert checked.stdout.count("error:") == 2, checked.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", out], cwd=PACKAGE, check=True)
    (built,) = out.glob("*.whl")
    return built


def test_the_wheel_is_pure_typed_and_free_of_dependencies(wheel: Path) -> None:
    assert wheel.name == "ichido-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = archive.read("ichido-0.1.0.dist-info/METADATA").decode()
    assert "ichido/py.typed" in names and not any("test" in name for name in names)
    assert not any(name.endswith("entry_points.txt") for name in names), "the command comes from another distribution"
    required = [line for line in metadata.splitlines() if line.startswith("Requires-Dist")]
    assert required and all("extra ==" in line for line in required)
    assert "Requires-Python: >=3.10" in metadata


def test_the_wheel_works_in_an_empty_environment(wheel: Path, tmp_path: Path, api: str) -> None:
    venv = tmp_path / "venv"
    python = venv / "bin/python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-index", "--no-deps", wheel], check=True
    )
    script = f'''
import asyncio, ichido

async def effect():
    return {{"id": 17}}

assert ichido.once("order-17", lambda: {{"id": 17}}, api={api!r}) == {{"id": 17}}
assert asyncio.run(ichido.once("order-17", effect, api={api!r})) == {{"id": 17}}
service = ichido.HybridDeduplicationService(ledger=ichido.ClaimApi({api!r}))
assert [service.check_and_mark_processed("Ev1").is_new for _ in range(2)] == [True, False]
assert ichido.batch_key(["b", "a"]) == "1eb7c54d52831bbfe8942af0b1c56b7409523a59ed6ca99c1174fef7eb32c1b5"
try:
    ichido.EventDeduplicationService()
except ichido.InvalidInput as error:
    print(error)
'''
    ran = subprocess.run([python, "-I", "-c", script], text=True, capture_output=True, check=False, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert "pip install 'ichido[dynamodb]'" in ran.stdout


def test_the_readme_runs(api: str, tmp_path: Path) -> None:
    """Every Python block of the README compiles, and the first one runs against a server."""
    readme = (PACKAGE / "README.md").read_text()
    blocks = [block.split("```")[0] for block in readme.split("```python\n")[1:]]
    assert len(blocks) >= 4
    for block in blocks:
        compile(block, "README.md", "exec")
    first = blocks[0].replace("http://127.0.0.1:8070", api)
    exec(compile(first, "README.md", "exec"), {})
