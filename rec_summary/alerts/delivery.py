"""Reporting alerts: as text, as lines of JSON, in a log, by running a command, and by Apprise."""

from __future__ import annotations

import abc
import contextlib
import errno
import json
import logging
import os
import queue
import shlex
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rec_summary.alerts.states import Transition
from rec_summary.errors import ArgumentError, os_errors_as, required, three_part, verbatim
from rec_summary.scrubbing import remember_address, scrubbed
from rec_summary.series.text import moment, printable
from rec_summary.tables.formats import json_value

if TYPE_CHECKING:
    from rich.text import Text

Complain = Callable[[str], None]
"""Takes a sentence about an alert that cannot be delivered."""

_EXEC_SECS: Final = 60.0
_CAPACITY: Final = 1000
_POLL_SECS: Final = 0.05
_MODE: Final = 0o644
_SECONDS: Final = "%Y-%m-%d %H:%M:%S"


def _sentence(transition: Transition) -> str:
    """Returns a transition as one line of text."""
    rank = f" (rank {transition.rank})" if transition.rank else ""
    rule = transition.rule
    about = rule.title if rule.name is None else f"{rule.name} ({rule.text})"
    text = f"{_state(transition)}: {transition.run}{rank}: {about}: {transition.reason}"
    return printable(text)


def as_text(transition: Transition) -> Text:
    """Returns a transition as styled text, for a terminal."""
    from rich.text import Text

    date = moment(transition.wall_time)
    time_text = "at no time" if date is None else date.astimezone().strftime(_SECONDS)
    state, _, rest = _sentence(transition).partition(":")
    style = "bold red" if transition.firing else "green"
    return Text.assemble((time_text, "dim"), " ", (state.upper(), style), rest)


def as_json(transition: Transition) -> Mapping[str, Any]:
    """Returns a transition for JSON: NaN and infinities are strings."""
    value = transition.value
    date = moment(transition.wall_time)
    return {
        "state": _state(transition),
        "name": transition.rule.title,
        "rule": transition.rule.text,
        "run": transition.run,
        "rank": transition.rank,
        "tag": transition.tag,
        "step": transition.step,
        "value": None if value is None else json_value(np.float32(value)),
        "wall_time": transition.wall_time,
        "time": None if date is None else date.isoformat(timespec="milliseconds"),
        "reason": printable(transition.reason),
        "text": _sentence(transition),
    }


def environment(transition: Transition) -> dict[str, str]:
    """Returns a transition as environment variables: RS_STATE, RS_RUN and so on; each is a line."""
    return {
        f"RS_{name.upper()}": "" if value is None else printable(str(value))
        for name, value in as_json(transition).items()
    }


class _Failures:
    """Reports a failure once, until it works again."""

    def __init__(self, complain: Complain) -> None:
        self._complain = complain
        self._is_failing = False

    def note(self, failure: str | None) -> None:
        """Reports a failure if it is the first; None says that delivery works again."""
        if failure is not None and not self._is_failing:
            with contextlib.suppress(OSError):  # standard error is closed
                self._complain(failure)
        self._is_failing = failure is not None


class AlertLog:
    """Appends alerts to a file, a line of JSON each, in one write.

    Several processes may append to the same file. A failure is reported once, until a line can be
    written again.
    """

    def __init__(self, path: str | os.PathLike[str], complain: Complain) -> None:
        """Opens the file; creates it if it does not exist.

        Raises:
            ArgumentError: It cannot be written to.
        """
        self._path = os.fspath(path)
        self._failures = _Failures(complain)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        what, expected = "the log of alerts", "a file that can be written to"
        with os_errors_as(ArgumentError, what, printable(self._path), expected):
            self._file = os.open(self._path, flags, _MODE)
        self._is_torn = self._ends_within_a_line()

    def write(self, transition: Transition) -> None:
        """Appends an alert."""
        line = json.dumps(as_json(transition)).encode() + b"\n"
        if self._is_torn:
            line = b"\n" + line
        try:
            written = os.write(self._file, line)
            if written < len(line):
                self._is_torn = True
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            where = printable(self._path)
            self._failures.note(f"an alert cannot be written to {where}: {error.strerror}")
            return
        self._is_torn = False
        self._failures.note(None)

    def close(self) -> None:
        """Closes the file."""
        os.close(self._file)

    def _ends_within_a_line(self) -> bool:
        try:
            size = os.fstat(self._file).st_size
            return size > 0 and os.pread(self._file, 1, size - 1) != b"\n"
        except OSError:  # not a regular file
            return False


class Delivery(abc.ABC):
    """Delivers alerts, one after another, in a thread.

    Alerts are queued, up to a limit; more are dropped, or wait for room if `stop` is given. A
    failure is reported once, until it works again.
    """

    def __init__(
        self,
        what: str,
        complain: Complain,
        capacity: int = _CAPACITY,
        stop: threading.Event | None = None,
    ) -> None:
        """Starts the thread.

        Args:
            what: What delivers, for reports.
            complain: Takes failures; called from the thread.
            capacity: The most alerts that may wait.
            stop: If given, no alert is dropped until this is set: `queue` waits for room.
        """
        self.what = what
        self._failures, self._overflows = _Failures(complain), _Failures(complain)
        self._waiting: queue.Queue[Transition] = queue.Queue(capacity)
        self._stop = stop
        threading.Thread(target=self._run, name="rec_summary-alerts", daemon=True).start()

    def queue(self, transition: Transition) -> None:
        """Queues an alert; if too many are waiting, waits for room or drops it, with a report."""
        while self._stop and self._waiting.full() and not self._stop.wait(_POLL_SECS):
            pass
        try:
            self._waiting.put_nowait(transition)
            self._overflows.note(None)
        except queue.Full:
            self._overflows.note(f"{self.what} is too slow: alerts are dropped")

    def wait(self, given_up: Callable[[], bool] = lambda: False) -> int:
        """Waits until all alerts are delivered; returns how many are not.

        Args:
            given_up: Called every 50 ms; when it returns True, waiting ends.
        """
        waiting = self._waiting
        with waiting.all_tasks_done:
            while waiting.unfinished_tasks and not given_up():
                waiting.all_tasks_done.wait(_POLL_SECS)
            return waiting.unfinished_tasks

    @abc.abstractmethod
    def _failure(self, transition: Transition) -> str | None:
        """Delivers an alert; returns why it failed, or None."""

    def _run(self) -> None:
        while True:
            failure = self._failure(self._waiting.get())
            self._failures.note(None if failure is None else f"{self.what} {failure}")
            self._waiting.task_done()


class Command(Delivery):
    """Runs a command for each alert.

    The command runs without a shell, with the alert in its environment, and as JSON on its standard
    input.
    """

    def __init__(
        self, command: str, complain: Complain, timeout: float = _EXEC_SECS, **queue: Any
    ) -> None:
        """Looks for the program, and starts the thread.

        Args:
            command: The program and its arguments, quoted as in a shell.
            complain: As in `Delivery`.
            timeout: How long the command may take, in seconds; it is killed then.
            queue: As in `Delivery`.

        Raises:
            ArgumentError: There is no such program.
        """
        try:
            self._arguments = shlex.split(command)
        except ValueError as error:
            expected = f"a program and arguments ({error})"
            raise ArgumentError(three_part("the command", command, expected)) from error
        if not self._arguments or shutil.which(self._arguments[0]) is None:
            expected = "a program that can be run, and arguments; a shell's syntax needs `sh -c`"
            raise ArgumentError(three_part("the command", command, expected))
        self._timeout = timeout
        super().__init__(f"the command {self._arguments[0]}", complain, **queue)

    def _failure(self, transition: Transition) -> str | None:
        """Runs the command; returns why it failed, or None."""
        try:
            process = subprocess.Popen(
                self._arguments,
                env={**os.environ, **environment(transition)},
                stdin=subprocess.PIPE,
                stdout=2,  # standard output may be JSON that somebody reads
                start_new_session=True,  # Ctrl-C does not reach it; killpg reaches its children
            )
        except (OSError, ValueError) as error:
            return f"cannot be run: {error}"
        try:
            process.communicate(json.dumps(as_json(transition)).encode(), self._timeout)
        except subprocess.TimeoutExpired:
            late = f"took longer than {self._timeout:g} s"
            with contextlib.suppress(ProcessLookupError):
                try:
                    os.killpg(process.pid, signal.SIGKILL)
                except PermissionError:  # it runs as another user, such as `sudo`
                    return f"{late} and cannot be killed; nobody waits for it any longer"
            process.communicate()
            return f"{late} and was killed"
        return None if process.returncode == 0 else f"ended with {process.returncode}"


class Notification(Delivery):
    """Sends alerts through Apprise: to chats, by e-mail, and more.

    Texts go out as plain text: names from records are no markup.
    """

    def __init__(self, url: str, complain: Complain, **queue: Any) -> None:
        """Checks the URL, and starts the thread.

        Args:
            url: As Apprise has it, such as `lark://TOKEN`, or the file of a configuration of
                Apprise, such as one with a URL in each line. Of a URL, only the scheme is shown.
            complain: As in `Delivery`.
            queue: As in `Delivery`.

        Raises:
            ArgumentError: Apprise knows no such URL.
            ImportError: Apprise is not installed.
        """
        self._apprise = apprise = required("apprise", "`rec-summary watch --notify`", "notify")
        # It would log parts of the URL by itself.
        logger = logging.getLogger("apprise")
        logger.propagate = False
        logger.addHandler(logging.NullHandler())
        self._service = apprise.Apprise()
        scheme, separator, _ = url.partition("://")
        if separator:
            remember_address(url)
            self._service.add(url)
        else:
            self._service.add(apprise.AppriseConfig(os.path.abspath(url)))
            for service in self._service:
                remember_address(service.url())
        if not len(self._service):
            expected = "a URL of Apprise, such as lark://TOKEN, or a file with such URLs"
            received = verbatim(f"{scheme}://…" if separator else "no such file")
            raise ArgumentError(three_part("the address of notifications", received, expected))
        what = f"by {scheme}" if separator else f"to {printable(os.path.basename(url))}"
        super().__init__(f"the notification {what}", complain, **queue)

    def _failure(self, transition: Transition) -> str | None:
        apprise, rule = self._apprise, transition.rule
        kind = apprise.NotifyType.FAILURE if transition.firing else apprise.NotifyType.SUCCESS
        title = printable(f"{_state(transition).upper()} {rule.title}: {transition.run}")
        try:
            with apprise.LogCapture(level=logging.WARNING, fmt="%(message)s") as log:
                done = self._service.notify(
                    body=_sentence(transition),
                    title=title,
                    notify_type=kind,
                    body_format=apprise.NotifyFormat.TEXT,
                )
                said = log.getvalue().strip().splitlines()
        except Exception as error:  # noqa: BLE001  # a plug-in may raise anything
            done, said = False, [f"{type(error).__name__}: {error}"]
        return None if done else f"failed: {scrubbed(printable(said[-1])) if said else 'no reason'}"


def _state(transition: Transition) -> str:
    return "firing" if transition.firing else "resolved"
