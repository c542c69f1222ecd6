"""What finding many runs takes: open files, and requests to a store."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from rec_summary.records.reading.runs import find_runs
from rec_summary.series.discovery.run_poller import RunPoller
from tests.support.record_dirs import event, scalar, write_segment
from tests.support.stores import store_in_memory

OPEN_FILES = 64
RUNS = 80


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree of more runs than files that may be open, one of which has as many ranks."""
    source = tmp_path_factory.mktemp("fleet") / "records"
    for number in range(RUNS):
        write_segment(source / f"run_{number:02}", event(1, scalar("loss", number)))
        write_segment(source / "run_00", event(1, scalar("loss", number)), rank=number + 1)
    return source


@pytest.mark.parametrize(
    "command",
    [("lineage",), ("export", "LOGS"), ("tail", "--once"), ("watch", "--once"), ("verify",)],
    ids=" ".join,
)
def test_commands_need_few_open_files(source: Path, tmp_path: Path, command: Sequence[str]) -> None:
    name, *options = [str(tmp_path / word) if word == "LOGS" else word for word in command]
    program = "import sys; from rec_summary.cli import main; sys.exit(main())"
    done = subprocess.run(
        [
            *(
                "prlimit",
                f"--nofile={OPEN_FILES}",
            ),  # `preexec_fn` forks: see `crafted.run`
            *(sys.executable, "-c", program, name, str(source), *options),
        ],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, "Too many" in done.stderr) == (0, False), done.stderr


def test_a_store_is_listed_once_by_a_look() -> None:
    store = store_in_memory()
    name = "events.out.events.summary.1700000000.0.host_MS"
    for number in range(20):
        store.pipe_file(f"/records/run_{number}/{name}", b"")
    url = f"{store.protocol}://records"
    assert len(find_runs(url)) == 20
    assert store.lists.count == 1
    poller = RunPoller(url)
    assert len(poller.find()) == len(poller.poll()) == 20
    assert store.lists.count == 2
