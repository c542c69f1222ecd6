"""Which program trains: its commit, its command line, and the versions of packages."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest

from rec_summary._pb.lineage_pb2 import RunState
from tests.support.command import environment
from tests.support.training_records import lineage
from tests.support.waiting import PATIENCE_SECS, eventually

TRAINING = """
import sys
from rec_summary import SummaryRecord
{begin}
with SummaryRecord(sys.argv[1]) as record:
    record.add_value("scalar", "loss", 1.0)
    record.record(1)
    {then}
"""
WITH_A_COLLECTOR = """
import sys
from rec_summary import SummaryCollector
from tests.support.nets import bounded, click_model
with SummaryCollector(sys.argv[1]) as collector:
    click_model().train(1, bounded(2), callbacks=[collector], dataset_sink_mode=False)
"""
IN_PROCESSES = """
import multiprocessing, os, sys
from rec_summary import SummaryRecord

def train(directory):
    with SummaryRecord(directory) as record:
        record.add_value("scalar", "loss", 1.0)
        record.record(1)

if __name__ == "__main__":
    with SummaryRecord(sys.argv[1] + "/parent"):
        for method in ("fork", "spawn"):
            context = multiprocessing.get_context(method)
            child = context.Process(target=train, args=(sys.argv[1] + "/" + method,))
            child.start()
            child.join()
            assert child.exitcode == 0
"""

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def git(directory: Path, *arguments: str) -> str:
    who = ("-c", "user.name=A", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false")
    command = ["git", "-C", str(directory), *who, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def alone(directory: Path, program: str = TRAINING, **parts: str) -> Path:
    """Returns a program in a directory of its own."""
    directory.mkdir()
    path = directory / "train.py"
    path.write_text(program.format(**{"begin": "", "then": "", **parts}))
    return path


def in_repository(directory: Path, program: str = TRAINING) -> tuple[Path, str]:
    """Returns a program in a repository, and the commit."""
    path = alone(directory, program)
    git(directory, "init", "-q")
    git(directory, "add", ".")
    git(directory, "commit", "-q", "-m", "first")
    return path, git(directory, "rev-parse", "HEAD")


def trained(program: Path, *arguments: str | Path, **variables: str) -> str:
    """Runs a program from another directory; returns what it prints."""
    done = subprocess.run(
        [sys.executable, program, *map(str, arguments)],
        cwd=program.parents[1],
        env={**environment(), "GLOG_v": "3", **variables},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECS,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def last(directory: Path) -> RunState:
    state: RunState = lineage(directory, "train_lineage")[-1].run_state
    assert state.status == RunState.FINISHED
    return state


def fake_git(directory: Path, script: str) -> str:
    """Returns a PATH on which git is a script."""
    (directory / "bin").mkdir()
    path = directory / "bin" / "git"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return f"{path.parent}:{os.environ['PATH']}"


@needs_git
@pytest.mark.parametrize("way", ["record", "collector"])
def test_the_commit_is_that_of_the_program(tmp_path: Path, way: str) -> None:
    if way == "collector":
        pytest.importorskip("mindspore")
    text = TRAINING if way == "record" else WITH_A_COLLECTOR
    program, commit = in_repository(tmp_path / "project", text)
    (program.parent / "untracked").write_text("")
    trained(program, tmp_path / "run", "--lr", "0.1")
    state = last(tmp_path / "run")
    assert (state.git_commit, state.HasField("git_dirty"), state.git_dirty) == (commit, True, False)
    assert state.command[1:] == [str(program), str(tmp_path / "run"), "--lr", "0.1"]
    assert state.packages["python"] == platform.python_version()
    assert state.packages["numpy"] == np.__version__
    assert ("mindspore" in state.packages) == (way == "collector")


@needs_git
def test_a_changed_file_makes_the_tree_dirty(tmp_path: Path) -> None:
    program, commit = in_repository(tmp_path / "project")
    program.write_text(program.read_text() + "# changed")
    other, _ = in_repository(tmp_path / "other")
    # As git sets it for its hooks.
    trained(program, tmp_path / "run", GIT_DIR=str(other.parent / ".git"))
    state = last(tmp_path / "run")
    assert (state.git_commit, state.git_dirty) == (commit, True)


@pytest.mark.parametrize("why", ["no git", "no repository", "no commit", "another owner"])
def test_without_a_commit_the_rest_is_recorded(tmp_path: Path, why: str) -> None:
    if why in ("no commit", "another owner") and shutil.which("git") is None:
        pytest.skip("git is not installed")
    program = alone(tmp_path / "project")
    if why == "another owner":
        shutil.rmtree(program.parent)
        program, _ = in_repository(program.parent)
    if why == "no commit":
        git(program.parent, "init", "-q")
    variables = {
        "no git": {"PATH": str(tmp_path)},
        "another owner": {"GIT_TEST_ASSUME_DIFFERENT_OWNER": "1"},  # git's own tests have it
    }
    assert trained(program, tmp_path / "run", **variables.get(why, {})) == ""
    state = last(tmp_path / "run")
    assert not state.HasField("git_commit")
    assert not state.HasField("git_dirty")
    assert state.command[1:] == [str(program), str(tmp_path / "run")]
    assert "numpy" in state.packages


def test_steps_do_not_wait_for_git_and_the_last_lineage_does(tmp_path: Path) -> None:
    trained_file = shlex.quote(str(tmp_path / "trained"))
    script = f"until [ -e {trained_file} ]; do sleep 0.02; done; echo {'a1' * 20}"
    program = alone(
        tmp_path / "project",
        begin="from rec_summary.training.process import provenance\n"
        f"provenance.MOST_SECS = {PATIENCE_SECS}",
        then=f"open({str(tmp_path / 'trained')!r}, 'w').close()",
    )
    # If a step waited for git, git would wait for the step.
    trained(program, tmp_path / "run", PATH=fake_git(tmp_path, script))
    state = last(tmp_path / "run")
    assert (state.git_commit, state.git_dirty) == ("a1" * 20, True)


def test_the_end_does_not_wait_for_a_git_that_hangs(tmp_path: Path) -> None:
    number = tmp_path / "number"
    script = f"echo $$ > {shlex.quote(str(number))}; exec sleep 100000"
    program = alone(tmp_path / "project")
    assert trained(program, tmp_path / "run", PATH=fake_git(tmp_path, script)) == ""
    state = last(tmp_path / "run")
    assert not state.HasField("git_commit")
    assert state.command[1:] == [str(program), str(tmp_path / "run")]
    pid = int(number.read_text())
    eventually(lambda: not psutil.pid_exists(pid))


@needs_git
def test_each_process_finds_its_own(tmp_path: Path) -> None:
    program, commit = in_repository(tmp_path / "project", IN_PROCESSES)
    trained(program, tmp_path)
    for method in ("fork", "spawn"):
        state = last(tmp_path / method)
        assert state.git_commit == commit
        assert state.command[1:] == [str(program), str(tmp_path)]


@pytest.mark.parametrize("off", ["1", "0"])
def test_a_variable_turns_it_off(tmp_path: Path, off: str) -> None:
    program = alone(tmp_path / "project")
    trained(program, tmp_path / "run", REC_SUMMARY_NO_PROVENANCE=off)
    state = last(tmp_path / "run")
    facts = (state.git_commit, *state.command, *state.packages)
    assert any(facts) == (off == "0")
    assert state.host


def test_secrets_of_the_command_line_are_left_out(tmp_path: Path) -> None:
    program = alone(tmp_path / "project")
    words = [
        "--db-password",
        "hunter2",
        "--token=hunter2",
        "s3://ME:hunter2@bucket/x",
        "--lr",
        "1",
    ]
    trained(program, tmp_path / "run", *words)
    assert last(tmp_path / "run").command[3:] == [
        *("--db-password", "***", "--token=***", "s3://…@bucket/x", "--lr", "1")
    ]


@pytest.mark.parametrize("words", [["x"] * 200, ["x" * 3000], ["x" * 1500, "y" * 1500, "z"]])
def test_of_a_long_command_line_the_beginning_is_recorded(tmp_path: Path, words: list[str]) -> None:
    program = alone(tmp_path / "project")
    trained(program, tmp_path / "run", *words)
    command = last(tmp_path / "run").command
    assert command[1] == str(program)
    assert command[-1] == "…"
    assert len(command) <= 51
    assert sum(map(len, command)) <= 2001


def test_a_program_within_the_command_line_is_left_out(tmp_path: Path) -> None:
    code = TRAINING.format(begin="", then="")
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "run")],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECS,
    )
    assert done.returncode == 0, done.stderr
    assert last(tmp_path / "run").command[1:] == ["-c", str(tmp_path / "run")]


def test_arguments_that_are_not_utf8_are_recorded(tmp_path: Path) -> None:
    program = alone(tmp_path / "project")
    trained(program, tmp_path / "run", os.fsdecode(b"a\xffb"))
    assert last(tmp_path / "run").command[3:] == ["a?b"]
