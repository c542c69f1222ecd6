"""Failures of telemetry are counted, and do not stop the caller."""

from __future__ import annotations

import logging
import os
import signal
import threading

import pytest

from rec_summary.records.failures import Troubles
from tests.support.forked import in_child
from tests.support.waiting import PATIENCE_SECS


def test_only_the_first_failure_of_a_kind_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    troubles = Troubles()
    with caplog.at_level(logging.WARNING):
        for kind in ("write", "write", "flush"):
            troubles.report(kind, OSError("full"))
    assert troubles.counts == {"write": 2, "flush": 1}
    assert len(caplog.records) == 2


def test_a_limit_is_counted_and_logged_once_and_is_no_failure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    troubles = Troubles()
    for _ in range(2):
        troubles.limit("no graph", "the graph is not recorded")
    troubles.report("write", "full")
    assert troubles.counts == {"no graph": 2, "write": 1}
    assert troubles.failures == {"write": 1}
    limit, _ = caplog.records
    assert limit.message == "rec_summary: the graph is not recorded"


def test_a_child_that_is_forked_while_threads_report_can_report_as_well() -> None:
    troubles, done = Troubles(), threading.Event()

    def report() -> None:
        while not done.is_set():
            troubles.report("write", "full")

    threads = [threading.Thread(target=report) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(100):
            child = in_child(lambda: (signal.alarm(30), troubles.report("write", "full")))
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        done.set()
        for thread in threads:
            thread.join()


def test_an_attempt_reports_an_exception_and_continues() -> None:
    troubles = Troubles()
    with troubles.attempt("histogram"):
        raise ValueError("empty")
    with troubles.attempt("loss"):
        pass
    assert troubles.counts == {"histogram": 1}


def test_a_signal_handler_may_report_while_a_failure_is_reported() -> None:
    """It runs in the thread that holds the lock."""
    troubles = Troubles(lambda kind: True)

    class First(tuple[str, str]):
        """Is looked at while the lock is held, and acts like such a handler."""

        def __bool__(self) -> bool:
            troubles.first = ("close", "busy")
            troubles.report("close", "busy")
            return True

    troubles.first = First(("write", "full"))
    reporting = threading.Thread(target=troubles.report, args=("write", "full"), daemon=True)
    reporting.start()
    reporting.join(PATIENCE_SECS)
    assert not reporting.is_alive()
    assert troubles.counts == {"close": 1, "write": 1}


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_attempt_does_not_stop_the_end_of_the_process(error: type[BaseException]) -> None:
    troubles = Troubles()
    with pytest.raises(error), troubles.attempt("loss"):
        raise error
    assert troubles.counts == {}


@pytest.mark.parametrize(("keeps", "first"), [(True, ("write", "full")), (False, None)])
def test_the_first_failure_is_kept_where_somebody_asks_for_it(
    first: tuple[str, str] | None, *, keeps: bool
) -> None:
    troubles = Troubles(lambda kind: keeps and kind != "open")
    troubles.report("open", "gone")
    troubles.report("write", "full")
    troubles.report("close", "busy")
    assert troubles.first == first
