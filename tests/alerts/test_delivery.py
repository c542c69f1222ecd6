"""Alerts as text, as JSON and in a log; handing them to real commands."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import io
import json
import math
import multiprocessing
import os
import resource
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from rec_summary.alerts import delivery
from rec_summary.alerts.delivery import AlertLog, Command, Notification, as_json, as_text
from rec_summary.alerts.rules import parse
from rec_summary.alerts.states import Transition
from rec_summary.errors import ArgumentError
from tests.support.receiver import Receiver, direct  # noqa: F401  # a fixture
from tests.support.waiting import PATIENCE_SECS, eventually


def transition(
    value: float | None = 1.5, *, firing: bool = True, run: str = "run", rule: str = "loss > 1"
) -> Transition:
    at = 1_700_000_000.0
    return Transition(firing, parse(rule), run, 2, "loss", 7, at, value, "loss = 1.5")


def shown(each: Transition) -> str:
    out = io.StringIO()
    Console(file=out, width=40).print(as_text(each), soft_wrap=True)
    return out.getvalue()


def test_as_text() -> None:
    text = shown(transition(run="[red]a\x1b[0m\n" + "b" * 60))
    assert "FIRING [red]a\\x1b[0m\\n" + "b" * 60 + " (rank 2): loss > 1: loss = 1.5\n" in text
    assert text.count("\n") == 1
    for firing, style in ((True, "bold red"), (False, "green")):
        assert style in {str(span.style) for span in as_text(transition(firing=firing)).spans}


def test_as_json() -> None:
    assert as_json(transition(firing=False)) == {
        "state": "resolved",
        "name": "loss > 1",
        "rule": "loss > 1",
        "run": "run",
        "rank": 2,
        "tag": "loss",
        "step": 7,
        "value": 1.5,
        "wall_time": 1_700_000_000.0,
        "time": "2023-11-14T22:13:20.000+00:00",
        "reason": "loss = 1.5",
        "text": "resolved: run (rank 2): loss > 1: loss = 1.5",
    }


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (math.nan, "NaN"),
        (-math.inf, "-Infinity"),
        (0.10000000149011612, 0.1),  # the float32 that 0.1 is
    ],
)
def test_values_in_json(value: float | None, expected: object) -> None:
    assert as_json(transition(value))["value"] == expected
    json.dumps(as_json(transition(value)), allow_nan=False)


@pytest.mark.parametrize("wall_time", [1e300, -1e300, 1e12])
def test_a_time_beyond_the_calendar_is_no_date(wall_time: float) -> None:
    each = dataclasses.replace(transition(), wall_time=wall_time)
    assert shown(each).startswith("at no time FIRING run")
    assert as_json(each)["time"] is None
    assert as_json(each)["wall_time"] == wall_time


def test_a_sentence_names_the_rule_and_says_what_it_is() -> None:
    named = dataclasses.replace(transition(rule="hot: loss > 1"), rank=0)
    assert as_json(named)["text"] == "firing: run: hot (loss > 1): loss = 1.5"


def _append(path: Path, run: str) -> None:
    log = AlertLog(path, lambda text: None)
    for _ in range(200):
        log.write(transition(run=run))
    log.close()


def forked(*calls: tuple[Any, ...]) -> None:
    """Calls functions with arguments, each in a process of its own, at the same time."""
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=function, args=given) for function, *given in calls]
    for process in processes:
        process.start()
    for process in processes:
        process.join(PATIENCE_SECS)
        assert process.exitcode == 0


def test_a_log_is_appended_to_by_several_processes_at_once(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("torn")
    forked(*((_append, path, letter * 3000) for letter in "ab"))
    first, *lines = [line for line in path.read_text().split("\n") if line]
    assert first == "torn"
    runs = [json.loads(line)["run"] for line in lines]
    assert sorted(runs) == ["a" * 3000] * 200 + ["b" * 3000] * 200


def test_a_log_that_cannot_be_opened_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="the log of alerts is invalid"):
        AlertLog(tmp_path / "missing" / "log", lambda text: None)


def _full(path: Path, out: Path) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    reports: list[str] = []
    log = AlertLog(path, reports.append)
    log.write(transition())
    size = os.path.getsize(path)
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, hard))  # as a full disk: half a line
    log.write(transition())
    log.write(transition())
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    log.write(transition())
    out.write_text(json.dumps(reports))


def test_a_full_disk_is_reported_once_and_costs_no_other_line(tmp_path: Path) -> None:
    path, out = tmp_path / "log", tmp_path / "out"
    forked((_full, path, out))
    [report] = json.loads(out.read_text())
    assert "an alert cannot be written to" in report
    first, torn, last, end = path.read_text().split("\n")
    assert json.loads(first) == json.loads(last)
    assert first.startswith(torn)
    assert end == ""


@pytest.fixture
def script(tmp_path: Path) -> Iterator[Path]:
    """A program that appends its environment and arguments to a file."""
    path = tmp_path / "a script.py"
    path.write_text(
        f"#!{sys.executable}\n"
        "import json, os, sys\n"
        "alert = {k: v for k, v in os.environ.items() if k.startswith('RS_')}\n"
        f"with open({str(tmp_path / 'alerts')!r}, 'a') as file:\n"
        "    print(json.dumps([alert, sys.argv[1:], json.load(sys.stdin)]), file=file)\n"
        "sys.exit(int(os.environ['RS_STEP']))\n",
        encoding="utf-8",
    )
    path.chmod(0o700)
    return path


def received(script: Path) -> list[Any]:
    return [json.loads(line) for line in (script.parent / "alerts").read_text().splitlines()]


def run_for(command: delivery.Delivery, *transitions: Transition) -> None:
    for each in transitions:
        command.queue(each)
    assert command.wait() == 0


def began(step: int = 3, run: str = "ctr/a b") -> Transition:
    """Returns the beginning of an alert."""
    rule, reason = parse("hot: loss > 1 for 5m"), f"loss/auto = nan at step {step}"
    return Transition(True, rule, run, 0, "loss/auto", step, 1_700_000_000.5, math.nan, reason)


def test_a_command_gets_the_alert_in_its_environment_and_no_shell_sees_it(script: Path) -> None:
    reports = list[str]()
    command = Command(f"'{script}' '$RS_RUN; echo' \"two words\"", reports.append)
    alert = began(0, run="a; b\0$(c)\nd\t\x1b")
    run_for(command, alert)
    assert reports == []
    [[variables, arguments, on_standard_input]] = received(script)
    assert on_standard_input == as_json(alert)
    assert arguments == ["$RS_RUN; echo", "two words"]
    assert variables == delivery.environment(alert)
    stated = {
        "RS_RUN": r"a; b\x00$(c)\nd\t\x1b",
        "RS_STATE": "firing",
        "RS_NAME": "hot",
        "RS_RULE": "loss > 1 for 5m",
        "RS_VALUE": "NaN",
        "RS_TIME": "2023-11-14T22:13:20.500+00:00",
    }
    assert stated.items() <= variables.items()
    assert delivery.environment(transition(None))["RS_VALUE"] == ""


def test_a_command_that_fails_is_reported_once_until_it_works_again(script: Path) -> None:
    reports = list[str]()
    run_for(Command(f"'{script}'", reports.append), *map(began, (1, 2, 0, 3)))
    assert [report.rpartition(" ")[2] for report in reports] == ["1", "3"]
    assert len(received(script)) == 4


def test_a_failure_that_nobody_reads_does_not_end_the_commands(script: Path) -> None:
    def broken(report: str) -> None:
        raise BrokenPipeError(report)

    command = Command(f"'{script}'", broken)
    for step in (1, 0):
        command.queue(began(step))
    eventually(lambda: len(received(script)) == 2, despite=FileNotFoundError)
    eventually(lambda: command.wait(lambda: True) == 0)


def test_a_command_that_hangs_is_killed_with_all_it_started(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    # The shell's child holds the fifo open for writing: it has an end when that child dies.
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    reports = list[str]()
    command = Command(f"sh -c 'sleep 1000 > {fifo}; true'", reports.append, timeout=0.5)
    run_for(command, began())
    [report] = reports
    assert "took longer than 0.5 s and was killed" in report
    eventually(lambda: os.read(reader, 1) == b"", despite=BlockingIOError)
    os.close(reader)


def test_a_command_that_cannot_be_killed_does_not_hold_up_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of another user, such as `sudo`."""
    groups = list[int]()

    def refuse(group: int, number: int) -> None:
        groups.append(group)
        raise PermissionError(errno.EPERM, "Operation not permitted")

    reports = list[str]()
    command = Command(f"sh -c 'sleep 1000; touch {tmp_path}/end'", reports.append, timeout=0.1)
    with monkeypatch.context() as patch:
        # The tests may run as root, who may kill every process.
        patch.setattr(os, "killpg", refuse)
        run_for(command, began(), began(4))
    try:
        assert len(groups) == 2
        [report] = reports
        assert "took longer than 0.1 s and cannot be killed" in report
    finally:
        for group in groups:
            os.killpg(group, signal.SIGKILL)
            os.waitpid(group, 0)


@pytest.mark.parametrize("text", ["", "no-such-program-here", "'unclosed"])
def test_a_command_that_cannot_be_run_is_a_mistake(text: str) -> None:
    with pytest.raises(ArgumentError, match="the command is invalid"):
        Command(text, lambda report: None)


@pytest.fixture
def slow(tmp_path: Path) -> str:
    """A command that says when it begins, waits for `go`, and then writes the step."""
    waits = f"touch {tmp_path}/began; while [ ! -e {tmp_path}/go ]; do sleep 0.02; done"
    return f"sh -c '{waits}; echo $RS_STEP >> {tmp_path}/steps'"


def begin(command: Command, tmp_path: Path, step: int = 0) -> None:
    """Has a slow command begin."""
    command.queue(began(step))
    eventually((tmp_path / "began").exists)


def test_watching_does_not_wait_for_a_command_and_drops_what_is_too_much(
    slow: str, tmp_path: Path
) -> None:
    reports = list[str]()
    command = Command(slow, reports.append, capacity=2)
    for number, first, steps in ((1, 0, "012"), (2, 5, "012567")):
        begin(command, tmp_path, first)
        for step in range(first + 1, first + 5):
            command.queue(began(step))
        assert reports == ["the command sh is too slow: alerts are dropped"] * number
        (tmp_path / "go").touch()
        assert command.wait() == 0
        assert (tmp_path / "steps").read_text().split() == [*steps]
        for marker in ("go", "began"):
            (tmp_path / marker).unlink()


def test_waiting_for_a_command_can_be_given_up(slow: str, tmp_path: Path) -> None:
    command = Command(slow, lambda report: None)
    begin(command, tmp_path)
    command.queue(began(1))
    assert command.wait(lambda: True) == 2
    (tmp_path / "go").touch()
    assert command.wait() == 0


def test_no_alert_is_dropped_if_queueing_may_wait_until_it_is_stopped(
    slow: str, tmp_path: Path
) -> None:
    reports, stop = list[str](), threading.Event()
    command = Command(slow, reports.append, capacity=1, stop=stop)
    begin(command, tmp_path)
    threading.Timer(0.1, (tmp_path / "go").touch).start()
    for step in (1, 2, 3, 4):
        command.queue(began(step))
    assert command.wait() == 0
    assert (tmp_path / "steps").read_text().split() == ["0", "1", "2", "3", "4"]
    assert reports == []
    stop.set()
    for step in (5, 6, 7, 8):
        command.queue(began(step))
    assert reports == ["the command sh is too slow: alerts are dropped"]


@pytest.mark.usefixtures("direct")
def test_a_notification_has_a_title_and_the_sentence() -> None:
    reports = list[str]()
    with contextlib.closing(Receiver()) as receiver:
        sending = Notification(f"json://{receiver.address}/", reports.append)
        run_for(sending, began(run="<b>*a*</b>\n@all"), transition(firing=False))
    assert reports == []
    first, last = receiver.received
    reason = "loss/auto = nan at step 3"
    assert first["title"] == r"FIRING hot: <b>*a*</b>\n@all"
    assert first["message"] == rf"firing: <b>*a*</b>\n@all: hot (loss > 1 for 5m): {reason}"
    assert (first["type"], last["type"]) == ("failure", "success")
    assert last["title"] == "RESOLVED loss > 1: run"


@pytest.mark.usefixtures("direct")
def test_a_notification_that_fails_is_reported_once_without_its_credentials(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    reports = list[str]()
    with contextlib.closing(Receiver(500, 500, 200, 404)) as receiver:
        url = f"json://bot:pass-1234@{receiver.address}/hook/token-5678"
        sending = Notification(url, reports.append)
        run_for(sending, *map(began, (1, 2, 3, 4)))
        assert len(receiver.received) == 4
        (tmp_path / "services.txt").write_text(f"# whom to tell\n{url}\n")
        run_for(Notification(str(tmp_path / "services.txt"), reports.append), began())
        assert len(receiver.received) == 5
    run_for(sending, began(), began())  # it is gone
    assert [report.split(": ")[0] for report in reports] == ["the notification by json failed"] * 2
    assert "500" in reports[0]
    with pytest.raises(ArgumentError) as mistake:
        Notification("slack://token-5678/short", reports.append)
    assert "Received: slack://…. Expected: a URL of Apprise" in str(mistake.value)
    out, err = capfd.readouterr()
    for text in (*reports, str(mistake.value), out, err):
        assert "pass-1234" not in text
        assert "token-5678" not in text


@pytest.mark.usefixtures("direct")
@pytest.mark.parametrize("url", ["", "nothing-such", "no-such-scheme://x", "lark://"])
def test_an_address_that_apprise_does_not_know_is_a_mistake(url: str) -> None:
    with pytest.raises(ArgumentError, match="the address of notifications is invalid"):
        Notification(url, lambda report: None)
