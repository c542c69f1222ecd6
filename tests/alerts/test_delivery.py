"""Handing alerts to real commands and a real HTTP server."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rec_summary.alerts import delivery
from rec_summary.alerts.delivery import Command, Delivery, DeliveryError, Webhook, environment
from rec_summary.alerts.grammar import parse
from rec_summary.alerts.states import Transition
from rec_summary.series.options import ArgumentError
from tests.support.webhook import Receiver


def transition(step: int = 3, run: str = "ctr/a b", value: float = float("nan")) -> Transition:
    """Returns the beginning of an alert."""
    rule = parse("hot: loss > 1 for 5m")
    reason = f"loss/auto = {value:.6g} at step {step}"
    return Transition(True, rule, run, 0, "loss/auto", step, 1_700_000_000.5, value, reason)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "_BACK_OFF_SECS", (0.0, 0.0, 0.0))
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def script(tmp_path: Path) -> Iterator[Path]:
    """A program that appends its environment and arguments to a file."""
    path = tmp_path / "a script.py"
    path.write_text(
        f"#!{sys.executable}\n"
        "import json, os, sys\n"
        "told = {k: v for k, v in os.environ.items() if k.startswith('RS_')}\n"
        f"with open({str(tmp_path / 'told')!r}, 'a') as file:\n"
        "    print(json.dumps([told, sys.argv[1:]]), file=file)\n"
        "sys.exit(int(os.environ['RS_STEP']))\n",
        encoding="utf-8",
    )
    path.chmod(0o700)
    return path


def told(script: Path) -> list[Any]:
    return [json.loads(line) for line in (script.parent / "told").read_text().splitlines()]


def handed_over(outlet: delivery.Outlet, *transitions: Transition) -> list[str]:
    """Hands alerts over and returns what was reported."""
    reports: list[str] = []
    each = Delivery(outlet, reports.append)
    for one in transitions:
        each(one)
    assert each.close() == 0
    return reports


def test_a_command_gets_the_alert_in_its_environment_and_no_shell_sees_it(script: Path) -> None:
    command = Command(f"'{script}' '$RS_RUN; echo' \"two words\"")
    assert handed_over(command, transition(0, run="a; b\0$(c)")) == []
    [[variables, arguments]] = told(script)
    assert arguments == ["$RS_RUN; echo", "two words"]
    assert variables["RS_RUN"] == "a; b\\x00$(c)"
    assert variables["RS_STATE"] == "firing"
    assert variables["RS_NAME"] == "hot"
    assert variables["RS_RULE"] == "loss > 1 for 5m"
    assert variables["RS_VALUE"] == "NaN"
    assert variables["RS_TIME"] == "2023-11-14T22:13:20.500+00:00"
    assert set(variables) == set(environment(transition()))


def test_a_command_that_fails_is_told_once_until_it_works_again(script: Path) -> None:
    reports = handed_over(Command(f"'{script}'"), *map(transition, (1, 2, 0, 3)))
    assert [report.rpartition(" ")[2] for report in reports] == ["1", "3"]
    assert len(told(script)) == 4


def test_a_command_that_hangs_is_killed_with_all_it_started(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    # The shell's child holds the fifo open for writing: reading it ends when that child dies.
    command = Command(f"sh -c 'sleep 1000 > {fifo}; true'", timeout=0.5)
    reader = threading.Thread(target=fifo.read_bytes)
    reader.start()
    [report] = handed_over(command, transition())
    assert "took longer than 0.5 s and was killed" in report
    reader.join(20)
    assert not reader.is_alive()


@pytest.mark.parametrize("text", ["", "no-such-program-here", "'unclosed"])
def test_what_cannot_be_run_is_told_before_any_work(text: str) -> None:
    with pytest.raises(ArgumentError, match="the command is invalid"):
        Command(text)


def test_a_webhook_gets_json_with_a_text() -> None:
    with Receiver() as receiver:
        assert handed_over(Webhook(receiver.url), transition(3)) == []
    [received] = receiver.received
    assert (received["run"], received["step"], received["value"]) == ("ctr/a b", 3, "NaN")
    assert received["text"] == ("firing: ctr/a b: hot (loss > 1 for 5m): loss/auto = nan at step 3")


@pytest.mark.parametrize("codes", [(500,), (503, 429, 502)])
def test_a_webhook_is_tried_again(codes: tuple[int, ...]) -> None:
    with Receiver(*codes) as receiver:
        assert handed_over(Webhook(receiver.url), transition()) == []
    assert len(receiver.received) == len(codes) + 1


def test_a_webhook_that_fails_for_long_is_told_once_and_no_longer_waited_for() -> None:
    with Receiver(*[500] * 6) as receiver:
        reports = handed_over(Webhook(receiver.url), *map(transition, range(4)))
    assert reports == ["the webhook at 127.0.0.1 answered 500"]
    assert [each["step"] for each in receiver.received] == [0, 0, 0, 0, 1, 2, 3]


@pytest.mark.parametrize("code", [302, 400, 404])
def test_a_webhook_that_refuses_or_sends_elsewhere_is_not_asked_again(code: int) -> None:
    with Receiver(code) as receiver:
        reports = handed_over(Webhook(receiver.url), transition())
    assert reports == [f"the webhook at 127.0.0.1 answered {code}"]
    assert len(receiver.received) == 1


def test_a_webhook_that_nobody_answers_is_told_without_its_secret() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/token"
        [report] = handed_over(Webhook(url), transition())
    assert "the webhook at 127.0.0.1 cannot be reached" in report
    assert "token" not in report


@pytest.mark.parametrize(
    "url",
    [
        *("ftp://host/x", "file:///etc/passwd", "host/x", "http://", "http://u:p@host/"),
        *("http://host:99999/", "http://host/a b", "http://host/\r\nX: y", "http://[::1"),
    ],
)
def test_what_is_no_address_is_told_before_any_work(url: str) -> None:
    with pytest.raises(ArgumentError, match="the webhook is invalid"):
        Webhook(url)


class Slow:
    """An outlet that waits until it may go on."""

    what = "the slow one"

    def __init__(self) -> None:
        self.go = threading.Event()
        self.began = threading.Event()
        self.steps: list[int | None] = []

    def deliver(self, each: Transition, *, patient: bool, stop: threading.Event) -> None:
        self.began.set()
        while not self.go.wait(0.01):
            if stop.is_set():
                raise DeliveryError("was given up")
        self.steps.append(each.step)


def test_nobody_waits_for_a_slow_outlet_and_what_is_too_much_is_dropped_and_told() -> None:
    slow, reports = Slow(), list[str]()
    each = Delivery(slow, reports.append, capacity=2)
    each(transition(0))
    assert slow.began.wait(20)
    for step in (1, 2, 3, 4):
        each(transition(step))
    assert reports == ["the slow one is too slow: alerts are not handed over"]
    slow.go.set()
    assert each.close() == 0
    assert slow.steps == [0, 1, 2]


def test_waiting_for_a_slow_outlet_can_be_given_up() -> None:
    slow = Slow()
    each = Delivery(slow, lambda text: None)
    each(transition(0))
    assert slow.began.wait(20)
    each(transition(1))
    assert each.close(lambda: True) == 2
