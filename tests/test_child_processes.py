"""No process that the package starts imports a module from the working directory."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.shadowing import shadow_modules
from tests.support.waiting import PATIENCE_SECS

PACKAGE = Path(__file__).parents[1] / "rec_summary"
STARTERS = {"subprocess", "multiprocessing", "pty", "joblib", "distributed"}
OS_CALLS = ("fork", "exec", "spawn", "posix_spawn", "system", "popen")
# What starts processes, or could; whoever adds to these tests it below.
KNOWN = {
    "alerts/delivery.py": "the command of the user, as it is",
    "cli/commands/mcp.py": "AGENT",
    "engines/engine.py": "counts cores",
    "engines/pools.py": "WORKERS",
    "engines/worker.py": "asks for the parent",
    "records/writing/retention.py": "COMPACTION",
    "training/process/provenance.py": "git, which is no Python",
}

COMPACTION = """
import sys
from rec_summary.records.failures import Troubles
from rec_summary.records.reading.runs import list_files
from rec_summary.records.writing.retention import LEAST_BYTES, Compactor, CompactorSettings
from rec_summary.records.writing.run_writer import RunWriter

for _ in range(20):
    RunWriter("records").close()
troubles = Troubles()
patience = float(sys.argv[1])
settings = CompactorSettings(silent_secs=patience, join_secs=patience, end_secs=patience)
compactor = Compactor("records", 0, LEAST_BYTES, None, troubles, settings)
compactor.begun(())
compactor.close()
print(troubles.counts or len(list_files("records")))
"""
WORKERS = """
import operator, sys
from rec_summary.engines.engine import Engine
from rec_summary.engines.units import run_units

if __name__ == "__main__":
    print(sum(outcome.result for outcome in run_units(Engine({!r}, jobs=2), operator.neg, [1, 2])))
"""

AGENT = """
import sys
import anyio
from mcp import Client, StdioServerParameters, stdio_client
from rec_summary import SummaryRecord

with SummaryRecord("records/run") as record:
    record.add_value("scalar", "loss", 1.0)
    record.record(1)
run = "from rec_summary.cli import main; main(['mcp', 'records'])"
code = f"import sys; sys.path = {sys.path}; {run}"
server = StdioServerParameters(command=sys.executable, args=["-I", "-c", code])

async def ask():
    async with Client(stdio_client(server)) as client:
        answer = await client.call_tool("last_values", {})
        print(1 if '"loss"' in answer.content[0].text else answer)

anyio.run(ask)
"""


def names_in(source: str) -> Iterator[str]:
    """Yields what a module imports, by name or by text, and its calls of `os`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value  # of import_module
        elif isinstance(node, ast.Attribute):
            yield ast.unparse(node)


def starts_processes(name: str) -> bool:
    top, _, call = name.partition(".")
    if top == "os":
        return call.startswith(OS_CALLS)
    return top in STARTERS or "subprocess" in name or "ProcessPool" in name


def test_every_place_that_starts_a_process_is_tested_here() -> None:
    found = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if any(" " not in name and starts_processes(name) for name in names_in(path.read_text()))
    }
    assert found == set(KNOWN)


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        pytest.param(COMPACTION, "2", id="compaction"),
        pytest.param(AGENT, "1", id="agent"),
        pytest.param(WORKERS.format("loky"), "-3", id="loky"),
        pytest.param(WORKERS.format("dask"), "-3", id="dask"),
    ],
)
def test_no_child_imports_from_the_working_directory(
    tmp_path: Path, program: str, expected: str
) -> None:
    if program == AGENT:
        pytest.importorskip("mcp")
    elif program != COMPACTION and sys.version_info < (3, 11):
        pytest.skip("Python 3.10 cannot be told so by its environment")
    if "dask" in program:
        pytest.importorskip("distributed")
    folder = tmp_path / "folder"
    imported = shadow_modules(folder)
    script = tmp_path / "scripts" / "program.py"
    script.parent.mkdir()
    script.write_text(program)
    done = subprocess.run(
        [sys.executable, script, str(PATIENCE_SECS)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert not imported.exists(), imported.read_text()
    assert done.stdout.split() == [expected], done.stderr
