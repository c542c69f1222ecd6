"""Handing alerts to commands and webhooks, from a thread of their own.

Watching never waits for them: alerts are queued, up to a limit, and handed over one after
another. What fails is told once, until it works again.
"""

from __future__ import annotations

import collections
import contextlib
import http.client
import json
import os
import shlex
import shutil
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from typing import Final, Protocol

from rec_summary.alerts.actions import Report, as_json
from rec_summary.alerts.states import Transition
from rec_summary.errors import three_part
from rec_summary.series.options import ArgumentError

EXEC_SECS: Final = 60.0
WEBHOOK_SECS: Final = 10.0
_BACK_OFF_SECS: Final = (1.0, 3.0, 9.0)
_CAPACITY: Final = 1000
_PASSING: Final = frozenset((408, 425, 429))  # refusals that may be none later; and all from 500 on


class DeliveryError(Exception):
    """An alert could not be handed over."""


class Outlet(Protocol):
    """What takes alerts, and may take its time.

    Attributes:
        what: What it is called in messages.
    """

    what: str

    def deliver(self, transition: Transition, *, patient: bool, stop: threading.Event) -> None:
        """Hands an alert over.

        Args:
            transition: The alert.
            patient: Whether to try again if it fails.
            stop: Set when waiting has to end.

        Raises:
            DeliveryError: It could not be done.
        """


class Command:
    """Runs a command for each alert, without a shell, with the alert in its environment."""

    def __init__(self, command: str, timeout: float = EXEC_SECS) -> None:
        """Looks for the program.

        Args:
            command: The program and its arguments, quoted as in a shell.
            timeout: How long it may take, in seconds; it is killed then.

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
        self.what = f"the command {self._arguments[0]}"

    def deliver(self, transition: Transition, *, patient: bool, stop: threading.Event) -> None:
        """Runs the command; it is not tried again."""
        try:
            process = subprocess.Popen(
                self._arguments,
                env={**os.environ, **environment(transition)},
                stdin=subprocess.DEVNULL,
                stdout=2,  # standard output may be JSON that somebody reads
                start_new_session=True,  # Ctrl-C is for us, and killing is for all it started
            )
        except (OSError, ValueError) as error:
            raise DeliveryError(f"cannot be run: {error}") from error
        try:
            code = process.wait(self._timeout)
        except subprocess.TimeoutExpired as error:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise DeliveryError(f"took longer than {self._timeout:g} s and was killed") from error
        if code != 0:
            raise DeliveryError(f"ended with {code}")


class Webhook:
    """Posts each alert as JSON to an HTTP address. Redirections are not followed."""

    def __init__(self, url: str, timeout: float = WEBHOOK_SECS) -> None:
        """Checks the address; nothing is sent yet.

        Args:
            url: An http or https address.
            timeout: How long an answer may take, in seconds.

        Raises:
            ArgumentError: It is no such address.
        """
        expected = "an http:// or https:// address with a host, without user and password"
        try:
            parts = urllib.parse.urlsplit(url)
            sound = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError as error:
            raise ArgumentError(three_part("the webhook", url, expected)) from error
        printed = url.isascii() and url.isprintable() and " " not in url
        if not sound or not printed or "@" in parts.netloc:
            raise ArgumentError(three_part("the webhook", url, expected))
        self._url = url
        self._timeout = timeout
        # The rest of the address is often a secret.
        self.what = f"the webhook at {parts.hostname}"
        # By hand, since the usual opener also knows files and FTP, and goes where it is sent.
        self._opener = urllib.request.OpenerDirector()
        for handler in (
            urllib.request.ProxyHandler(),
            urllib.request.HTTPHandler(),
            urllib.request.HTTPSHandler(),
            urllib.request.HTTPDefaultErrorHandler(),
            urllib.request.HTTPErrorProcessor(),
        ):
            self._opener.add_handler(handler)

    def deliver(self, transition: Transition, *, patient: bool, stop: threading.Event) -> None:
        """Posts the alert; if `patient`, tries three times more unless it is refused for good."""
        body = json.dumps(as_json(transition)).encode()
        for pause in (*_BACK_OFF_SECS, None) if patient else (None,):
            try:
                self._post(body)
            except urllib.error.HTTPError as error:
                error.close()
                why, for_good = f"answered {error.code}", error.code < 500
                if for_good and error.code not in _PASSING:
                    raise DeliveryError(why) from error
            except (OSError, http.client.HTTPException) as error:
                why = f"cannot be reached: {getattr(error, 'reason', None) or error!r}"
            else:
                return
            if pause is None or stop.wait(pause):
                break
        raise DeliveryError(why)

    def _post(self, body: bytes) -> None:
        headers = {"Content-Type": "application/json", "User-Agent": "rec_summary"}
        request = urllib.request.Request(self._url, body, headers, method="POST")
        with self._opener.open(request, timeout=self._timeout):
            pass


class Delivery:
    """Hands alerts to an outlet, one after another, from a thread."""

    def __init__(self, outlet: Outlet, report: Report, capacity: int = _CAPACITY) -> None:
        """Starts the thread.

        Args:
            outlet: Where alerts go.
            report: Told of failures; called from the thread.
            capacity: The most alerts that may wait.
        """
        self._outlet = outlet
        self._report = report
        self._capacity = capacity
        self._waiting: collections.deque[Transition] = collections.deque()
        self._changed = threading.Condition()
        self._is_busy = False
        self._is_overflowing = False
        self._closing = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rec_summary-alerts", daemon=True)
        self._thread.start()

    def __call__(self, transition: Transition) -> None:
        """Queues an alert; drops it if too many are waiting, which is told."""
        with self._changed:
            overflows = len(self._waiting) >= self._capacity
            if not overflows:
                self._waiting.append(transition)
                self._changed.notify_all()
            tell, self._is_overflowing = overflows and not self._is_overflowing, overflows
        if tell:
            self._report(f"{self._outlet.what} is too slow: alerts are not handed over")

    def close(self, given_up: Callable[[], bool] = lambda: False) -> int:
        """Waits until all alerts are handed over.

        Args:
            given_up: Asked now and then; when it returns True, waiting ends.

        Returns:
            How many were not handed over.
        """
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            while (self._waiting or self._is_busy) and not given_up():
                self._changed.wait(0.05)
            left = len(self._waiting) + self._is_busy
            self._waiting.clear()
            self._stop.set()
        return left

    def _run(self) -> None:
        is_failing = False
        while (transition := self._take()) is not None:
            try:
                self._outlet.deliver(transition, patient=not is_failing, stop=self._stop)
            except DeliveryError as error:
                if not is_failing:
                    self._report(f"{self._outlet.what} {error}")
                is_failing = True
            else:
                is_failing = False

    def _take(self) -> Transition | None:
        with self._changed:
            self._is_busy = False
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._waiting or self._closing)
            if not self._waiting:
                return None
            self._is_busy = True
            return self._waiting.popleft()


def until(seconds: float) -> Callable[[], bool]:
    """Returns what tells whether so many seconds have passed."""
    end = time.monotonic() + seconds
    return lambda: time.monotonic() >= end


def environment(transition: Transition) -> dict[str, str]:
    """Returns an alert as variables for a command: RS_STATE, RS_RUN and so on."""
    found = {
        f"RS_{name.upper()}": "" if value is None else str(value)
        for name, value in as_json(transition).items()
    }
    return {name: value.replace("\0", "\\x00") for name, value in found.items()}
