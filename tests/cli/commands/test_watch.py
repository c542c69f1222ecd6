"""`rec-summary watch` as users meet it: a training in one process, watching in another."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import psutil
import pytest

from rec_summary._pb import lineage_pb2
from tests.support.command import HEAVY, PROGRAM, flat, python, run
from tests.support.receiver import Receiver, direct  # noqa: F401  # a fixture
from tests.support.record_dirs import event, lineage, scalar, train, write_segment
from tests.support.waiting import PATIENCE_SECS, eventually

GROWING = Path(__file__).parents[2] / "alerts" / "growing.py"
ROOT = Path(__file__).parents[3]


class Training:
    """A training in a process of its own, which does what it is asked to."""

    def __init__(self, directory: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(GROWING), str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )

    def do(self, **what: Any) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "done\n"

    def loss(self, step: int, value: float) -> None:
        self.do(**{"step": step, "loss/auto": value})

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


class Watch:
    """`rec-summary watch` in a process of its own."""

    def __init__(self, *arguments: str | Path) -> None:
        self.process = subprocess.Popen(
            [*PROGRAM, "watch", *map(str, arguments), "--interval", "0.05"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines: list[str] = []
        self.errors: list[str] = []
        self._threads = [
            threading.Thread(target=_read, args=(stream, into), daemon=True)
            for into, stream in (
                (self.lines, self.process.stdout), (self.errors, self.process.stderr)
            )
        ]  # fmt: skip
        for thread in self._threads:
            thread.start()

    def says(self, words: str) -> None:
        """Waits for words on standard error."""
        eventually(lambda: list(self.errors), lambda errors: words in "".join(errors))

    def tells(self, count: int) -> None:
        """Waits for so many lines on standard output."""
        eventually(
            lambda: (list(self.lines), list(self.errors)), lambda seen: len(seen[0]) >= count
        )

    def end(self, number: int = signal.SIGINT) -> int:
        self.process.send_signal(number)
        code = self.process.wait(PATIENCE_SECS)
        for thread in self._threads:
            thread.join(PATIENCE_SECS)
        return code


def _read(stream: IO[str], into: list[str]) -> None:
    for line in stream:
        into.append(line)


@pytest.fixture
def records(tmp_path: Path) -> Path:
    return tmp_path / "records"


@pytest.fixture
def training(records: Path) -> Iterator[Training]:
    training = Training(records / "run")
    with contextlib.ExitStack() as stack:
        stack.callback(training.kill)
        yield training


@pytest.fixture
def watching() -> Iterator[Callable[..., Watch]]:
    started: list[Watch] = []

    def start(*arguments: str | Path) -> Watch:
        started.append(Watch(*arguments))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.end(signal.SIGKILL)


def test_a_training_is_watched_from_outside(
    tmp_path: Path, records: Path, training: Training, watching: Callable[..., Watch]
) -> None:
    log, script = tmp_path / "alerts.jsonl", tmp_path / "page-me"
    script.write_text(f'#!/bin/sh\necho "$RS_STATE $RS_STEP" >> {tmp_path}/paged\n')
    script.chmod(0o700)
    training.do(step=0, other=1.0)
    watch = watching(
        *(records, "--rule", "nan-loss", "--rule", "hot: calibration > 1.1"),
        *("--log", log, "--exec", script),
    )
    watch.says("Earlier values are not judged")
    training.loss(1, 0.7)
    training.loss(2, float("nan"))
    watch.tells(1)
    training.do(rotate=True)
    training.loss(3, float("nan"))
    training.do(step=10, **{"ctr/calibration": 1.2})
    training.do(step=15, **{"ctr/calibration": 1.2})
    training.do(restart=True)
    training.do(step=12, **{"ctr/calibration": 1.2})
    training.do(step=20, **{"ctr/calibration": 1.2})
    training.loss(21, 0.5)
    watch.tells(3)
    eventually(
        (tmp_path / "paged").read_text,
        lambda paged: paged.count("\n") >= 3,
        despite=FileNotFoundError,
    )
    assert watch.end() == 0
    texts = [
        "firing: run: nan-loss (*[Ll]oss* is not finite): loss/auto = nan at step 2",
        "firing: run: hot (calibration > 1.1): ctr/calibration = 1.2 at step 10",
        "resolved: run: nan-loss (*[Ll]oss* is not finite): loss/auto = 0.5 at step 21",
    ]
    assert [json.loads(line)["text"] for line in log.read_text().splitlines()] == texts
    assert (tmp_path / "paged").read_text() == "firing 2\nfiring 10\nresolved 21\n"
    assert [line.split(" ", 2)[2].partition(" ")[0] for line in watch.lines] == [
        *("FIRING", "FIRING", "RESOLVED"),
    ]


def test_a_training_that_is_killed_is_a_stall_and_one_that_ends_is_none(
    records: Path, training: Training, watching: Callable[..., Watch]
) -> None:
    watch = watching(records, "--rule", "no data for 1s", "--json")
    training.do(status="RUNNING")
    training.loss(1, 0.7)
    training.kill()
    watch.tells(1)
    assert json.loads(watch.lines[0])["state"] == "firing"
    write_segment(
        records / "run",
        lineage(time.time(), train_lineage=train(status=lineage_pb2.RunState.STOPPED)),
    )
    watch.tells(2)
    assert json.loads(watch.lines[1])["reason"] in ("the run has ended", "data again")
    # The silence of another run begins later, so that of the ended one would be told before it.
    write_segment(records / "other", event(1, scalar("loss", 1), at=time.time()))
    watch.tells(3)
    assert watch.end(signal.SIGTERM) == 0
    assert [json.loads(line)["run"] for line in watch.lines] == ["run", "run", "other"]


@pytest.fixture
def source(records: Path) -> Path:
    write_segment(records / "good", *(event(step, scalar("loss", 1)) for step in (1, 2, 3)))
    write_segment(records / "bad", *(event(step, scalar("loss", step)) for step in (1, 2, 3)))
    return records


def test_the_exit_code_of_once(source: Path) -> None:
    done = run("watch", source, "--once", "--rule", "loss > 2")
    assert done.returncode == 1
    assert done.stdout.endswith("FIRING bad: loss > 2: loss = 3 at step 3\n")
    assert done.stdout.count("\n") == 1
    done = run("watch", source, "--once", "--rule", "loss > 5")
    assert (done.returncode, done.stdout) == (0, "No alert is firing in 2 runs.\n")
    done = run("watch", source, "--once", "--rule", "loss > 2", "--runs", "good", "-q")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert run("watch", source, "--once", "--rule", "loss > 2", "--since", "4").returncode == 0


def test_once_runs_the_command_before_it_ends(source: Path) -> None:
    done = run(
        *("watch", source, "--once", "--rule", "loss > 2", "-q"),
        *("--exec", "sh -c 'sleep 0.5; echo alert of $RS_RUN'"),
    )
    assert done.returncode == 1
    assert (done.stdout, done.stderr) == ("", "alert of bad\n")


def test_the_past_is_reported_on_request_only(source: Path, watching: Callable[..., Watch]) -> None:
    silent = watching(source, "--rule", "loss > 2")
    silent.says("Earlier values are not judged; --since 1d judges those of the last day.")
    assert "matches the rule" not in "".join(silent.errors)  # nothing new can be there yet
    for option in ("--history", "--since=1"):
        watch = watching(source, "--rule", "loss > 2", option)
        watch.tells(1)
        assert "FIRING bad: loss > 2: loss = 3 at step 3" in watch.lines[0]
        assert watch.end() == 0
    write_segment(source / "bad", event(4, scalar("loss", 1), at=time.time()))
    write_segment(source / "bad", event(5, scalar("loss", 4), at=time.time()))
    silent.tells(1)
    assert "loss = 4 at step 5" in silent.lines[0]
    assert silent.end() == 0


def test_a_rule_that_nothing_is_recorded_for_is_reported(
    source: Path, watching: Callable[..., Watch]
) -> None:
    once, none = ("watch", source, "--once", "-q"), ("--rule", "calibraton > 1")
    line = "rec-summary watch: no record matches the rule calibraton > 1"
    done = run(*once, *none)
    assert (done.returncode, done.stderr) == (2, f"{line}\n")
    assert run(*once, *none, "--rule", "loss > 2").returncode == 1
    done = run(*once, *none, "--since", "1")  # it may have been recorded before
    assert (done.returncode, done.stderr) == (0, f"{line}\n")
    assert run(*once, "--since", "1", "--rule", "loss > 9").stderr == ""
    done = run(*once)  # nobody has asked for an AUC
    assert (done.returncode, done.stderr) == (0, "")
    live = watching(source, *none, "--since", "1")
    live.says(f"{line} yet")
    assert live.end() == 0
    assert live.errors[-1].strip() == line


def test_the_tags_of_a_short_name_are_named(records: Path) -> None:
    windows = [f"recommender/{name}/last_{number}" for name in ("auc", "x") for number in range(11)]
    write_segment(records / "run", event(1, *(scalar(tag, 1) for tag in windows)))
    done = run("watch", records, "--once", "--rule", "auc > 2", "--rule", "x/last_3 > 2")
    shown = ", ".join(sorted(windows[:11])[:8])
    assert done.stderr == (
        f"The rule auc > 2 applies to each of {shown} and 3 more; quotation marks choose one tag.\n"
    )
    for rule in ("recommender/* > 2", '"recommender/auc/last_1" > 2', "no data for 100000d"):
        assert run("watch", records, "--once", "--rule", rule).stderr == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rule", "loss >"], "the rule, at column 7, is invalid"),
        (["--rules", "no-such-file"], "the file of rules is invalid"),
        (["--rule", "loss > 1 and auc < 1"], "one condition in each rule"),
        (["--rule", "run:prod/* loss > 1"], "the option `--runs` chooses runs"),
        (["--exec", "no-such-program"], "the command is invalid"),
        (["--log", "no-such-directory/log"], "the log of alerts is invalid"),
        (["--since", "soon"], "since is invalid"),
        (["--once", "--runs", "nothing"], "the choice of runs is invalid"),
    ],
)
def test_mistakes_in_arguments(source: Path, arguments: list[str], message: str) -> None:
    done = run("watch", source, *arguments)
    assert done.returncode == 2
    assert message in flat(done.stderr)


def test_a_reader_that_has_enough_ends_it(source: Path, watching: Callable[..., Watch]) -> None:
    command = [*PROGRAM, "watch", str(source), "--rule", "loss > 2", "--since", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(PATIENCE_SECS) == 0
        assert process.stderr is not None
        assert b"Error" not in process.stderr.read()


def test_help_loads_nothing_heavy_and_watching_no_tensorboard(source: Path) -> None:
    code = (
        "import sys; from rec_summary.cli import main\n"
        "main(sys.argv[1:])\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    done = python(code, "watch", "--help")
    assert done.stderr.splitlines()[-1] == "[]"
    done = python(code, "watch", source, "--once", "--rule", "loss > 5")
    loaded = done.stderr.splitlines()[-1]
    assert "tensorboard" not in loaded
    assert "mindspore" not in loaded


def test_nothing_listens_and_nothing_is_sent_unless_asked(
    source: Path, watching: Callable[..., Watch]
) -> None:
    watch = watching(source, "--since", "0", "--rule", "loss > 2", "--rule", "stall")
    watch.tells(1)
    process = psutil.Process(watch.process.pid)
    assert process.net_connections() == []
    assert watch.end() == 0


@pytest.mark.usefixtures("direct")
def test_notifications_are_sent_and_their_address_is_never_shown(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_segment(tmp_path / "r" / name, event(1, scalar("loss", float("nan"))))
    with contextlib.closing(Receiver(500, 500)) as receiver:
        url = f"json://bot:pass-1234@{receiver.address}/token-5678"
        failed = run("watch", tmp_path / "r", "--once", "--notify", url)
        assert len(receiver.received) == 2
        (tmp_path / "services").write_text(url)
        sent = run("watch", tmp_path / "r", "--once", "--notify", tmp_path / "services")
        assert [each["title"] for each in receiver.received[2:]] == [
            *("FIRING nan-loss: a", "FIRING nan-loss: b")
        ]
    wrong = run("watch", tmp_path / "r", "--once", "--notify", "slack://token-5678/x", "--debug")
    assert (failed.returncode, sent.returncode, wrong.returncode) == (1, 1, 2)
    assert failed.stderr.count("the notification by json failed") == 1
    assert sent.stderr == ""
    assert "Received: slack://…" in flat(wrong.stderr)
    for done in (failed, sent, wrong):
        assert "pass-1234" not in done.stdout + done.stderr
        assert "token-5678" not in done.stdout + done.stderr


def test_without_apprise_it_says_what_to_install(tmp_path: Path) -> None:
    write_segment(tmp_path, event(1, scalar("loss", 1)))
    code = (
        "import sys; sys.modules['apprise'] = None; from rec_summary.cli import main; "
        "sys.exit(main(['watch', sys.argv[1], '--once', '--notify', 'lark://x']))"
    )
    done = python(code, tmp_path)
    assert done.returncode == 3
    assert "pip install 'rec_summary[notify]'" in flat(done.stderr)
