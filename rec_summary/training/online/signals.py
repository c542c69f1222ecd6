"""SIGTERM and Ctrl-C as a request to stop, instead of a sudden end.

Two facts shape this module. Python runs signal handlers in its main thread only, between two
bytecodes. And MindSpore takes SIGINT over in C++, at every call of a network anew, and turns it
into SIGTERM. Python's handler is put back before each wait for data, so Ctrl-C during a wait
arrives here as SIGINT, and during a step as SIGTERM.

While the main thread waits in C++ for data, no handler runs at all. But Python's own C handler
writes to a file descriptor at once, whatever the main thread does. A thread that reads there ends
the wait, and the handler runs; the user's handler too, if it is theirs.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, NoReturn

# One Ctrl-C can arrive twice: timeout(1) signals the process and then its group, and a launcher
# may pass on what the terminal has already sent to everybody.
_SAME_REQUEST_SECONDS = 1.0

# How long the main thread may take to come back to Python by itself.
_PATIENCE_SECONDS = 0.1

# Handlers that nobody chose: what a fresh interpreter has.
_DEFAULTS: dict[signal.Signals, tuple[Any, ...]] = {
    signal.SIGTERM: (signal.SIG_DFL,),
    signal.SIGINT: (signal.default_int_handler, signal.SIG_DFL),
}


class StopSignals:
    """While entered, notes SIGTERM and SIGINT in place of dying of them.

    A handler that the user has installed stays in charge of its signal; only the defaults are
    replaced, and they are put back on leaving, with or without an exception. Outside of the main
    thread nothing is installed, since Python allows it only there.

    The first signal is noted, and ends a wait for data. A second one, more than a second later,
    comes from somebody who does not want to wait any longer: it puts the handlers back and
    raises, and a third then meets those handlers.

    Args:
        end_wait: Makes a wait inside `waiting` return soon. Called in another thread.

    Attributes:
        received: ``"SIGTERM"`` or ``"SIGINT"`` once one has arrived, else None.
    """

    def __init__(self, end_wait: Callable[[], None]) -> None:
        self.received: str | None = None
        self._watch = _WaitWatch(end_wait)
        self._received_at = 0.0
        self._replaced: dict[signal.Signals, Any] = {}
        self._active = False
        self._in_main_thread = False
        # One object, so that it can be recognised later: each access makes another bound method.
        self._handler = self._handle

    def __enter__(self) -> StopSignals:
        self._in_main_thread = threading.current_thread() is threading.main_thread()
        if self._in_main_thread:
            self._watch.start()
            self._active = True
            _entered.add(self)
            for number, defaults in _DEFAULTS.items():
                if signal.getsignal(number) in defaults:
                    self._replaced[number] = signal.signal(number, self._handler)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._restore()

    def waiting(self) -> contextlib.AbstractContextManager[None]:
        """To be entered around each wait for data (5 µs)."""
        if self._in_main_thread:
            _put_back_sigint()
        return self._watch

    def raise_received(self) -> None:
        """Ends the process in the way that is usual for the signal that was received, if any.

        Raises:
            SystemExit: With code 143, after SIGTERM.
            KeyboardInterrupt: After SIGINT; the exit code is 130.
        """
        if self.received is not None:
            _raise(signal.Signals[self.received])

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if not self._active:
            self._pass_on(number, frame)
        elif self.received is None:
            self.received = signal.Signals(number).name
            self._received_at = time.monotonic()
        elif time.monotonic() - self._received_at > _SAME_REQUEST_SECONDS:
            self._restore()
            _raise(signal.Signals(number))

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        """Behaves as the replaced handler, for a callback that put ours back after we left."""
        before = self._replaced.get(signal.Signals(number), signal.SIG_DFL)
        if callable(before):
            before(number, frame)
        else:
            signal.signal(number, before)
            os.kill(os.getpid(), number)

    def _restore(self) -> None:
        if not self._active:
            return
        self._active = False
        _entered.discard(self)
        for number, before in self._replaced.items():
            # A callback may have installed its own in the meantime; that one stays.
            if signal.getsignal(number) is self._handler:
                signal.signal(number, before)
        _put_back_sigint()
        self._watch.stop()


class _WaitWatch(contextlib.AbstractContextManager[None]):
    """Ends a wait of the main thread in C++ when a signal is pending.

    Entered around each wait; that costs two additions.
    """

    def __init__(self, end_wait: Callable[[], None]) -> None:
        self._end_wait = end_wait
        self._turns = 0  # odd while waiting
        self._thread: threading.Thread | None = None
        self._pipe = -1, -1
        self._before = -1

    def __enter__(self) -> None:
        self._turns += 1

    def __exit__(self, *error: object) -> None:
        self._turns += 1

    def start(self) -> None:
        self._pipe = os.pipe()
        os.set_blocking(self._pipe[1], False)  # a condition of set_wakeup_fd
        self._before = signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)
        self._thread = threading.Thread(target=self._watch, name="rec_summary-signals", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        signal.set_wakeup_fd(self._before)
        thread, self._thread = self._thread, None
        if thread is not None and thread.is_alive():  # it is not, in a forked child
            os.write(self._pipe[1], b"\0")
            thread.join()
        for end in self._pipe:
            os.close(end)

    def _watch(self) -> None:
        while True:
            numbers = os.read(self._pipe[0], 64)
            if self._before != -1:  # an event loop has a right to know
                with contextlib.suppress(OSError):
                    os.write(self._before, numbers.replace(b"\0", b""))
            if 0 in numbers:
                return
            if any(number in _DEFAULTS for number in numbers):
                self._end_stuck_wait()

    def _end_stuck_wait(self) -> None:
        # If the main thread takes a turn, it runs Python and with it the handler.
        turns = self._turns
        while self._thread is not None:
            time.sleep(_PATIENCE_SECONDS)
            if self._turns != turns:
                return
            if turns % 2:
                self._end_wait()


def _put_back_sigint() -> None:
    """Gives SIGINT back to the Python handler that MindSpore has replaced in C++."""
    handler = signal.getsignal(signal.SIGINT)
    if handler is not None:
        signal.signal(signal.SIGINT, handler)


def _raise(number: signal.Signals) -> NoReturn:
    if number is signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(128 + number)


# A child forked during training (data workers, writers of summaries) must die of SIGTERM as ever.
_entered: weakref.WeakSet[StopSignals] = weakref.WeakSet()


def _restore_in_child() -> None:
    for signals in list(_entered):
        signals._restore()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_restore_in_child)
