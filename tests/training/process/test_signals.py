"""SIGTERM and Ctrl-C: received in order, with the user's handlers, and the ends they lead to.

The first half sends signals to this process, the second half to processes that train.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tests.support import forkserver
from tests.support.programs import PROGRAMS

pytest.importorskip("mindspore")

from mindspore.train import LambdaCallback, OnRequestExit

from rec_summary.training.process.signals import InterruptSignals, StopSignals
from tests.faults.children import left_in
from tests.support.nets import Journal, Row, batch_of_clicks, click_model, stream

pytestmark = [
    pytest.mark.mindspore,
    pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals"),
]


@pytest.fixture(autouse=True)
def handlers_are_put_back() -> Iterator[None]:
    """Fails a test that leaves other handlers, or another wake-up descriptor, than it found."""
    numbers = signal.SIGTERM, signal.SIGINT
    before = [signal.getsignal(number) for number in numbers]
    yield
    after = [signal.getsignal(number) for number in numbers]
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)
    assert after == before
    assert signal.set_wakeup_fd(-1) == -1


def send(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


def stop_signals() -> StopSignals:
    return StopSignals(end_wait=lambda: None)


@pytest.mark.parametrize(
    ("number", "name", "error"),
    [(signal.SIGTERM, "SIGTERM", SystemExit), (signal.SIGINT, "SIGINT", KeyboardInterrupt)],
)
def test_a_signal_is_noted_and_raised_afterwards(
    number: signal.Signals, name: str, error: type[BaseException]
) -> None:
    with stop_signals() as signals:
        assert signals.received is None
        send(number)
        assert signals.received == name

    with pytest.raises(error) as raised:
        signals.raise_received()
    if error is SystemExit:
        assert raised.value.code == 143  # type: ignore[attr-defined]


def test_python_prints_no_traceback_for_ctrl_c_but_for_every_other_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with stop_signals() as signals:
        send(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt) as raised:
        signals.raise_received()
    sys.excepthook(type(raised.value), raised.value, None)
    assert capsys.readouterr().err == ""
    sys.excepthook(KeyboardInterrupt, KeyboardInterrupt("another"), None)
    assert capsys.readouterr().err == "KeyboardInterrupt: another\n"


def test_without_a_signal_nothing_is_raised() -> None:
    with stop_signals() as signals:
        pass

    signals.raise_received()
    assert signals.received is None


def test_the_same_request_twice_is_one_and_a_later_one_raises() -> None:
    reached = []

    def end_hooks_with_two_more_signals() -> None:
        with stop_signals() as signals:
            send(signal.SIGTERM)
            send(signal.SIGTERM)
            reached.append(signals.received)
            time.sleep(1.1)  # a second is the limit
            send(signal.SIGINT)
            reached.append("not raised")

    with pytest.raises(KeyboardInterrupt):
        end_hooks_with_two_more_signals()
    assert reached == ["SIGTERM"]


def test_a_handler_of_the_user_decides_alone() -> None:
    seen = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))
    try:
        with stop_signals() as signals:
            send(signal.SIGTERM)
        assert seen == [signal.SIGTERM]
        assert signals.received is None
        signals.raise_received()
    finally:
        signal.signal(signal.SIGTERM, before)


def test_an_ignored_signal_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with stop_signals() as signals, signals.waiting():
            send(signal.SIGINT)
        assert signals.received is None
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_handler_installed_meanwhile_stays_and_may_pass_on_to_ours() -> None:
    seen = []
    before = signal.getsignal(signal.SIGINT)
    with stop_signals() as signals:
        ours = signal.getsignal(signal.SIGINT)

        def chained(number: int, frame: FrameType | None) -> None:
            seen.append(number)
            assert callable(ours)
            ours(number, frame)

        signal.signal(signal.SIGINT, chained)
        send(signal.SIGINT)
        assert signals.received == "SIGINT"
    try:
        with pytest.raises(KeyboardInterrupt):  # what the handler before ours does
            send(signal.SIGINT)
        assert seen == [signal.SIGINT] * 2
    finally:
        signal.signal(signal.SIGINT, before)


def test_outside_of_the_main_thread_nothing_is_installed() -> None:
    during = []

    def train() -> None:
        with stop_signals() as signals, signals.waiting():
            during.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()

    assert during == [signal.SIG_DFL]


def test_an_event_loop_around_keeps_its_wake_up_descriptor() -> None:
    async def inside_a_loop() -> str:
        hung_up = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, hung_up.set)
        with stop_signals():
            send(signal.SIGHUP)
        await asyncio.wait_for(hung_up.wait(), 60)
        return "heard"

    assert asyncio.run(inside_a_loop()) == "heard"


def test_a_training_callback_may_install_its_own_handler() -> None:
    before = signal.getsignal(signal.SIGTERM)
    callback = OnRequestExit(save_ckpt=False, save_mindir=False)
    try:
        click_model().online_train(stream(), [callback, Journal(stop_after=1)])
        assert getattr(signal.getsignal(signal.SIGTERM), "__self__", None) is callback
    finally:
        signal.signal(signal.SIGTERM, before)


def test_handlers_are_put_back_after_an_error_in_training() -> None:
    def fail(context: object) -> None:
        raise OSError("disk full")

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(OSError, match="disk full"):
        click_model().online_train(stream(), LambdaCallback(on_train_step_end=fail))
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_stopped_training_can_be_caught_and_followed_by_another() -> None:
    stop = LambdaCallback(on_train_step_end=lambda context: send(signal.SIGTERM))
    journal = Journal()
    model = click_model()

    with pytest.raises(SystemExit) as raised:
        model.online_train(stream(), [stop, journal])

    assert raised.value.code == 143
    assert journal.hooks.count("step_end") == 1
    assert journal.hooks[-3:] == ["epoch_end", "end", "exit"]
    assert journal.error is None
    journal = Journal(stop_after=2)
    model.online_train(stream(), journal)
    assert journal.hooks.count("step_end") == 2


def test_the_end_hook_of_a_step_sees_a_signal_that_came_during_the_step() -> None:
    seen: list[tuple[bool, str]] = []

    def end(context: Any) -> None:
        reason = context.original_args().get("stop_reason")
        seen.append((context.get_stop_requested(), reason))

    observe = LambdaCallback(
        on_train_step_begin=lambda context: send(signal.SIGTERM), on_train_step_end=end
    )
    with pytest.raises(SystemExit):
        click_model().online_train(stream(), observe)

    assert seen == [(True, "SIGTERM")]


def test_a_handler_of_the_user_runs_while_the_stream_is_quiet_and_training_may_go_on() -> None:
    more = threading.Event()

    def quiet() -> Iterator[Row]:
        yield batch_of_clicks(1)
        threading.Timer(0.3, send, [signal.SIGTERM]).start()
        more.wait()
        yield batch_of_clicks(2)
        yield batch_of_clicks(3)

    before = signal.signal(signal.SIGTERM, lambda number, frame: more.set())
    journal = Journal(stop_after=3)
    try:
        click_model().online_train(stream(quiet), journal)
    finally:
        signal.signal(signal.SIGTERM, before)

    assert journal.hooks.count("step_end") == 3
    assert journal.hooks.count("epoch_end") == 1
    assert journal.parameters["end"][0]["stop_reason"] == "request_stop"


def completed(name: str, stuck: bool) -> None:
    raise AssertionError("this process does not end")


def test_ctrl_c_raises_at_once_or_at_the_end_of_what_must_not_be_interrupted() -> None:
    reached = []

    def interrupted() -> None:
        with InterruptSignals(completed):
            send(signal.SIGINT)
            reached.append("behind the signal")

    def interrupted_in_a_hook() -> None:
        with InterruptSignals(completed) as signals:
            with signals.deferring():
                with signals.deferring():
                    send(signal.SIGINT)
                reached.append(signals.signal_name)
            reached.append("behind the hook")

    for train in (interrupted, interrupted_in_a_hook):
        with pytest.raises(KeyboardInterrupt):
            train()
    assert reached == ["SIGINT"]


def test_of_two_contexts_the_outer_one_handles_signals() -> None:
    with stop_signals() as outer, InterruptSignals(completed) as inner:
        with inner.deferring():
            send(signal.SIGTERM)
        assert outer.received == inner.signal_name == "SIGTERM"


def test_a_handler_of_the_user_decides_alone_in_mindspores_loops_too() -> None:
    seen = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))
    try:
        with InterruptSignals(completed) as signals:
            send(signal.SIGTERM)
        assert seen == [signal.SIGTERM]
        assert signals.signal_name is None
    finally:
        signal.signal(signal.SIGTERM, before)


# Processes that train

_CHILD = PROGRAMS / "signal_child.py"
_DEADLINE_SECONDS = 240  # only a hang takes as long


def trained_until(
    scenario: str, *numbers: signal.Signals, records: Path | None = None
) -> tuple[int, list[str]]:
    """Runs a scenario of `signal_child.py`, and sends it signals when it is ready.

    Args:
        scenario: Its name.
        numbers: The signals.
        records: A directory for the records of `Model.train`; None for `online_train`.

    Returns:
        The exit code, negative if it died of a signal, and the lines that it printed.
    """
    root = _CHILD.parents[3]
    with forkserver.Popen(
        [sys.executable, str(_CHILD), scenario, *([] if records is None else [str(records)])],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as child:
        hang = threading.Timer(_DEADLINE_SECONDS, child.kill)
        hang.start()
        try:
            assert child.stdout is not None
            lines = []
            # A quiet stream waits soon after "ready". A second signal less than a second after
            # the first was handled, as "blocked" tells, is taken for the first again.
            for number, word, pause in zip(numbers, ("ready", "blocked"), (0.3, 1.5), strict=False):
                for line in child.stdout:
                    lines.append(line.rstrip())
                    if lines[-1] == word:
                        break
                time.sleep(pause)
                child.send_signal(number)
            lines += [line.rstrip() for line in child.stdout]
            return child.wait(), lines
        finally:
            hang.cancel()


def in_order(lines: list[str], *expected: str) -> bool:
    rest = iter(lines)
    return all(line in rest for line in expected)


def test_sigterm_finishes_the_step_and_calls_the_end_hooks() -> None:
    code, lines = trained_until("busy", signal.SIGTERM)

    assert code == 143, lines
    steps = [line for line in lines if line.startswith("step")]
    assert len(steps) >= 3
    # The last step sees the request, unless the signal came after its end hooks.
    assert not any(step.endswith("True") for step in steps[:-1])
    assert in_order(
        lines,
        steps[-1],
        "epoch_end",
        "end True SIGTERM",
        "exit None",
        "handlers put back True",
        "exit functions run",
    )


def test_ctrl_c_does_the_same() -> None:
    code, lines = trained_until("busy", signal.SIGINT)

    assert code in (143, -signal.SIGINT), lines  # the shell shows -SIGINT as 130
    reason = "SIGTERM" if code == 143 else "SIGINT"
    assert in_order(lines, "epoch_end", f"end True {reason}", "exit None", "exit functions run")


@pytest.mark.parametrize(
    ("scenario", "number", "expected", "steps"),
    [
        ("quiet", signal.SIGTERM, 143, 3),
        ("quiet event", signal.SIGINT, -signal.SIGINT, 3),
        ("quiet from the start", signal.SIGTERM, 143, 0),
    ],
)
def test_a_quiet_stream_is_left(
    scenario: str, number: signal.Signals, expected: int, steps: int
) -> None:
    code, lines = trained_until(scenario, number)

    assert code == expected, lines
    assert sum(line.startswith("step") for line in lines) == steps
    assert lines.count("epoch_end") == min(steps, 1)
    assert in_order(lines, f"end True {number.name}", "exit None", "exit functions run")
    assert not any("Traceback" in line for line in lines)


def test_a_handler_of_the_user_ends_a_quiet_stream_in_its_own_way() -> None:
    code, lines = trained_until("their handler", signal.SIGTERM)

    assert code == 7, lines
    assert in_order(lines, "their handler", "exit SystemExit", "handlers put back True")
    assert not any(line.startswith("end") for line in lines)


def test_a_second_signal_lets_an_impatient_user_out() -> None:
    code, lines = trained_until("impatient", signal.SIGTERM, signal.SIGTERM)

    assert code == 143, lines
    assert in_order(lines, "blocked", "exit SystemExit", "handlers put back True")


def test_a_child_that_was_forked_during_training_dies_of_sigterm() -> None:
    code, lines = trained_until("forking", signal.SIGTERM)

    assert code == 143, lines
    assert f"child died of {int(signal.SIGTERM)}" in lines


@pytest.mark.parametrize(
    ("scenario", "number"),
    [("busy", signal.SIGINT), ("busy", signal.SIGTERM), ("stuck", signal.SIGINT)],
)
def test_a_signal_in_mindspores_loop_completes_the_records(
    scenario: str, number: signal.Signals, tmp_path: Path
) -> None:
    code, lines = trained_until(scenario, number, records=tmp_path)

    # MindSpore makes SIGTERM of SIGINT. A shell shows both as 143.
    assert code in (-signal.SIGTERM, 143), lines
    assert not any("Traceback" in line for line in lines)
    left = left_in(tmp_path)
    assert (left.statuses[-1], left.reason) == ("STOPPED", "SIGTERM")
    assert left.steps == list(range(1, len(left.steps) + 1))
    found = [re.search(r"interrupted \(SIGTERM or Ctrl-C\); step (\d+) is", line) for line in lines]
    [said] = [int(each[1]) for each in found if each]
    assert said - left.steps[-1] in (-1, 0, 1)  # a step may end meanwhile


def test_a_handler_of_the_user_ends_mindspores_loop_in_its_own_way(tmp_path: Path) -> None:
    code, lines = trained_until("their handler", signal.SIGTERM, records=tmp_path)

    assert code == 7, lines
    assert in_order(lines, "their handler", "exit SystemExit", "contexts left")
    assert left_in(tmp_path).reason == "SystemExit(7)"
