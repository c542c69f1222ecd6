"""Runs the blocks of a page, one after the other, in a folder with records."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from .blocks import Block, blocks

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
_SECONDS = 900.0  # only a block that hangs takes as long
_SLOWER = 10  # a machine where programs start late


@dataclass(frozen=True)
class Done:
    """The result of a block.

    Attributes:
        problem: What went wrong; empty if nothing did.
        printed: What it printed.
        group: The process group that it ran in.
    """

    problem: str
    printed: str
    group: int


class Runner:
    """Runs pages; what several of them prepare is made once."""

    def __init__(self, folder: Path) -> None:
        """Works below `folder`."""
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def page(self, path: Path) -> tuple[list[str], int, dict[int, str]]:
        """Runs the blocks of a page.

        Returns:
            A line for each problem, how many blocks were run, and what to write into the
            output blocks, by their lines.
        """
        where = self._folder / "pages" / path.stem
        shutil.rmtree(where, ignore_errors=True)
        where.mkdir(parents=True)
        problems, count, outputs, printed, groups = [], 0, {}, "", []
        on_page = list(blocks(path))
        if any(b.runs for b in on_page) and all(b.language != "prepare" for b in on_page):
            self._prepare("demo", where)
        for block in on_page:
            if block.language == "prepare":
                self._prepare(block.marks["prepare"], where)
            elif "file" in block.marks:
                (where / block.marks["file"]).write_text(block.text + "\n")
            elif "output" in block.marks:
                outputs[block.line] = printed
            elif block.runs:
                done = _run(block, where)
                groups.append(done.group)
                printed, count = done.printed, count + 1
                if done.problem:
                    at = f"{os.path.relpath(path, ROOT)}:{block.line}"
                    problems.append(f"{at}: {done.problem}\n{done.printed[-3000:]}")
        for group in groups:
            with contextlib.suppress(ProcessLookupError):  # what a block left in the background
                os.killpg(group, signal.SIGKILL)
        return problems, count, outputs

    def _prepare(self, name: str, where: Path) -> None:
        """Gives a page's folder what a program in prepare/ makes."""
        made = self._folder / "prepared" / name
        if not made.exists():
            scratch = made.with_name(f"{name}.part")
            shutil.rmtree(scratch, ignore_errors=True)
            scratch.mkdir(parents=True)
            program = HERE / "prepare" / f"{name}.py"
            with (scratch / "log").open("w") as log:
                code = subprocess.run(
                    [sys.executable, program], cwd=scratch, env=_environment(), stdout=log,
                    stderr=subprocess.STDOUT, timeout=_SECONDS, check=False,
                ).returncode  # fmt: skip
            if code:
                raise RuntimeError(f"{program} failed:\n{(scratch / 'log').read_text()[-3000:]}")
            (scratch / "log").unlink()
            scratch.rename(made)
        shutil.rmtree(where)
        shutil.copytree(made, where)


def _run(block: Block, where: Path) -> Done:
    seconds = float(block.marks.get("for", _SECONDS))
    done = _run_for(seconds, block, where)
    if done.problem and "for" in block.marks:
        # Perhaps it was not ready yet when it was stopped.
        done = _run_for(_SLOWER * seconds, block, where)
    return done


def _run_for(seconds: float, block: Block, where: Path) -> Done:
    command = ["bash", "-eu", "-o", "pipefail", "-c", block.text]
    if block.language == "python":
        given = block.marks.get("given")
        before = (HERE / "given" / f"{given}.py").read_text() if given else ""
        program = where / f".block_{block.line}.py"
        program.write_text(f"{before}\n{block.text}\n")
        command = [sys.executable, str(program)]
    wanted = int(block.marks.get("exits with", 0))
    process = subprocess.Popen(
        command, cwd=where, env=_environment(), stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        printed, _ = process.communicate(timeout=seconds)
        stopped = False
    except subprocess.TimeoutExpired:
        # As a terminal does: the whole group gets it.
        os.killpg(process.pid, signal.SIGINT if "for" in block.marks else signal.SIGKILL)
        printed, _ = process.communicate(timeout=60)
        stopped = True
    problem = ""
    if "for" in block.marks and not stopped:
        problem = f"it ended by itself, with exit code {process.returncode}"
    elif stopped and "for" not in block.marks:
        problem = f"it did not end within {_SECONDS:.0f} s"
    elif process.returncode != wanted:
        problem = f"exit code {process.returncode}, not {wanted}"
    text = "\n".join(line.rstrip() for line in printed.strip("\n").split("\n"))
    return Done(problem, text, process.pid)


def _environment() -> dict[str, str]:
    examples = str(ROOT / "docs" / "examples")
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((".", str(ROOT), str(ROOT / "tools"), examples)),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "MPLBACKEND": "agg",
        "COLUMNS": "100",
        "BROWSER": "true",  # opens nothing
        "EXAMPLES": examples,
    }
