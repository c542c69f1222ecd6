"""Trains until a signal ends it; run by `test_signals.py` in a process of its own.

Usage: ``python signal_child.py SCENARIO [RECORDS]``. Prints one line for each event, ``ready`` when
the signal may come. With a directory for records, it trains by `Model.train`, else online.
"""

from __future__ import annotations

import atexit
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from mindspore.train.callback import RunContext

from rec_summary import SummaryCollector
from tests.support.nets import Journal, Row, batch_of_clicks, click_model, stream


def say(*words: object) -> None:
    print(*words, flush=True)


class Reporter(Journal):
    """Prints what happens; ready at step 3, unless an argument says otherwise."""

    def __init__(self, ready_at: int = 3) -> None:
        super().__init__()
        self.ready_at = ready_at

    def on_train_step_end(self, run_context: RunContext) -> None:
        super().on_train_step_end(run_context)
        step = run_context.original_args().cur_step_num
        say("step", step, run_context.get_stop_requested())
        if step == self.ready_at:
            say("ready")

    def on_train_epoch_end(self, run_context: RunContext) -> None:
        say("epoch_end")

    def on_train_end(self, run_context: RunContext) -> None:
        say("end", run_context.get_stop_requested(), run_context.original_args().get("stop_reason"))

    def __exit__(self, kind: Any, *_: object) -> None:
        say("exit", getattr(kind, "__name__", kind))


def busy() -> Iterator[Row]:
    while True:
        yield batch_of_clicks()
        time.sleep(0.02)


def quiet_after(batches: int, wait: Any) -> Any:
    def generate() -> Iterator[Row]:
        for _ in range(batches):
            yield batch_of_clicks()
        wait()

    return generate


class BlockedAtTheEnd(Reporter):
    def on_train_end(self, run_context: RunContext) -> None:
        super().on_train_end(run_context)
        say("blocked")
        time.sleep(600)


class Forking(Reporter):
    """Forks at step 3, as MindSpore's own collector does at the start."""

    def on_train_step_end(self, run_context: RunContext) -> None:
        if run_context.original_args().cur_step_num == 3:
            child = os.fork()
            if child == 0:
                time.sleep(600)
            time.sleep(0.2)
            os.kill(child, signal.SIGTERM)
            _, status = os.waitpid(child, 0)
            say("child died of", os.WTERMSIG(status) if os.WIFSIGNALED(status) else "nothing")
        super().on_train_step_end(run_context)


def their_handler(number: int, frame: object) -> None:
    say("their handler")
    sys.exit(7)


class Rows:
    """A set without an end in sight; from the fifth row on, each takes its time."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __len__(self) -> int:
        return 1_000_000

    def __iter__(self) -> Iterator[Row]:
        for index in range(len(self)):
            if index >= 4:
                time.sleep(self._seconds)
            yield batch_of_clicks()


def train_offline(scenario: str, records: str) -> None:
    if scenario == "their handler":
        signal.signal(signal.SIGTERM, their_handler)
    collector = SummaryCollector(records, collect_freq=1)
    rows = stream(Rows(600 if scenario == "stuck" else 0.02))
    try:
        click_model().train(1, rows, callbacks=[Reporter(), collector], dataset_sink_mode=False)
    finally:
        say("contexts left")


def main(scenario: str, records: str | None = None) -> None:
    logging.basicConfig(level=logging.INFO, stream=sys.stdout)
    atexit.register(say, "exit functions run")
    if records is not None:
        train_offline(scenario, records)
        return
    reporter = Reporter()
    source: Any = busy
    if scenario == "quiet":
        source = quiet_after(3, lambda: time.sleep(600))
    elif scenario == "quiet event":
        source = quiet_after(3, threading.Event().wait)
    elif scenario == "quiet from the start":
        source = quiet_after(0, lambda: (say("ready"), time.sleep(600)))
    elif scenario == "their handler":
        signal.signal(signal.SIGTERM, their_handler)
        source = quiet_after(3, lambda: time.sleep(600))
    elif scenario == "impatient":
        reporter = BlockedAtTheEnd()
    elif scenario == "forking":
        reporter = Forking()
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    try:
        click_model().online_train(stream(source), reporter)
    finally:
        after = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
        say("handlers put back", before == after)


if __name__ == "__main__":
    main(*sys.argv[1:])
