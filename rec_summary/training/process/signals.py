"""SIGTERM and Ctrl-C during a training.

Python runs signal handlers only in its main thread, between two bytecodes. At every call of a
network, MindSpore replaces the handler of SIGINT in C++ and turns SIGINT into SIGTERM, which ends
a process at once. `StopSignals`, for a loop that asks for it, is a request to stop. It restores
Python's handler before each wait for data. So Ctrl-C arrives here as SIGINT during a wait, and as
SIGTERM during a step. `InterruptSignals`, for MindSpore's loops, completes the records.

While the main thread is in C++, for example to wait for data, no Python handler runs. But Python's
C handler writes to a file descriptor at once, whatever the main thread does. A thread reads this
descriptor. It ends the wait, and the handler runs then, also one that the user has installed; or,
in MindSpore's loops, it ends the process.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Container
from types import FrameType
from typing import Any, NoReturn

# One Ctrl-C can arrive twice: timeout(1) signals the process and then its group, and a launcher
# may forward a signal that the terminal has sent to the whole group.
_SAME_REQUEST_SECONDS = 1.0

# The time for the main thread to return to Python by itself: from a wait, and from anything.
_PATIENCE_SECONDS = 0.1
_STEP_SECONDS = 2.0

# The handlers of a new interpreter, which no user has chosen.
_DEFAULTS: dict[signal.Signals, tuple[Any, ...]] = {
    signal.SIGTERM: (signal.SIG_DFL,),
    signal.SIGINT: (signal.default_int_handler, signal.SIG_DFL),
}


class StopSignals:
    """A context in which SIGTERM and SIGINT do not end the process.

    It replaces only default handlers, and restores them on exit, with or without an exception. A
    handler that the user has installed stays. Outside the main thread it installs nothing, because
    Python does not allow it there.

    The first signal sets `received` and ends a wait for data. A second signal, more than a second
    later, restores the handlers and raises at once. A third signal reaches the restored handlers.

    Args:
        end_wait: Ends a wait inside `waiting`. It is called in another thread.

    Attributes:
        received: ``"SIGTERM"`` or ``"SIGINT"`` after one has arrived, else None.
    """

    def __init__(self, end_wait: Callable[[], None]) -> None:
        self.received: str | None = None
        self._end_wait = end_wait
        self._watch = _WaitWatch(self._end_stuck)
        self._received_at = 0.0
        self._replaced: dict[signal.Signals, Any] = {}
        self._active = False
        self._in_main_thread = False
        # One object for later comparisons: each access makes a new bound method.
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

    def __exit__(self, *error: object) -> None:
        self._restore()

    def waiting(self) -> contextlib.AbstractContextManager[None]:
        """Returns a context for a wait for data (5 µs)."""
        if self._in_main_thread:
            _restore_sigint()
        return self._watch

    def raise_received(self) -> None:
        """Ends the process in the usual way of the received signal, if there is one.

        Raises:
            SystemExit: With code 143, after SIGTERM.
            KeyboardInterrupt: After SIGINT; the exit code is 130.
        """
        if self.received is not None:
            _raise(signal.Signals[self.received], quiet=True)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if not self._active:
            self._call_replaced(number, frame)
        elif self.received is None:
            self.received = signal.Signals(number).name
            self._received_at = time.monotonic()
            self._receive()
        elif time.monotonic() - self._received_at > _SAME_REQUEST_SECONDS:
            self._restore()
            _raise(signal.Signals(number))

    def _receive(self) -> None:
        """Reacts to the first signal; the loop asks for `received`."""

    def _end_stuck(self, number: signal.Signals) -> None:
        """Ends a wait of the main thread; called in another thread."""
        self._end_wait()

    def _call_replaced(self, number: int, frame: FrameType | None) -> None:
        """Does what the replaced handler does, if a callback restores ours after `__exit__`."""
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
            # A handler that a callback has installed meanwhile stays.
            if signal.getsignal(number) is self._handler:
                signal.signal(number, before)
        _restore_sigint()
        self._watch.stop()


class _Deferral(contextlib.AbstractContextManager[None]):
    """Defers the signals of a context; entered at each hook, so it is no generator."""

    def __init__(self, signals: InterruptSignals) -> None:
        self._signals = signals

    def __enter__(self) -> None:
        self._signals._deferrals += 1

    def __exit__(self, *error: object) -> None:
        self._signals._deferrals -= 1
        self._signals._receive()


_NO_DEFERRAL = contextlib.nullcontext()


class InterruptSignals(StopSignals):
    """A context in which records are completed before SIGTERM or Ctrl-C ends the process.

    The process ends as it would without this context. SIGTERM calls `complete` and then ends it at
    once. SIGINT, which arrives before MindSpore's first step only, raises KeyboardInterrupt. Within
    `deferring`, both happen at the end of that. If the main thread stays in C++ for two seconds,
    `complete` is called in another thread, and the process ends with the signal's exit code.

    Handlers of the user stay, as in `StopSignals`. Inside another context of this module, the outer
    one handles the signals.

    Args:
        complete: Completes the records. Its arguments are the name of the signal, and whether the
            main thread is stuck: then it must not call MindSpore.
        ends_at_sigint: Whether SIGINT ends the process as well where the main thread is stuck, and
            not only SIGTERM. In a loop without MindSpore, it raises KeyboardInterrupt later.
    """

    def __init__(
        self, complete: Callable[[str, bool], None], *, ends_at_sigint: bool = True
    ) -> None:
        super().__init__(lambda: None)  # no wait can be ended
        self._complete = complete
        self._ends_at_sigint = ends_at_sigint
        self._thread = 0  # the main one, in this context
        self._completions = [complete]  # of this context, and of those inside it
        self._outer: StopSignals | None = None
        self._deferrals = 0
        self._deferral = _Deferral(self)
        self._claim = threading.Lock()  # of the thread that completes the records

    def __reduce__(self) -> tuple[Any, ...]:
        return InterruptSignals, (self._complete,)  # a copy of a collector has its own

    def __enter__(self) -> InterruptSignals:
        in_main_thread = threading.current_thread() is threading.main_thread()
        self._outer = next(iter(_entered), None) if in_main_thread else None
        if isinstance(self._outer, InterruptSignals):
            self._outer._completions.append(self._complete)
        if self._outer is None:
            self._watch.is_for(_STEP_SECONDS, self._replaced)
            super().__enter__()
            if not self._ends_at_sigint:
                numbers = self._replaced.keys() - {signal.SIGINT}
                self._watch.is_for(_STEP_SECONDS, numbers)
            self._watch.__enter__()
        self._thread = threading.get_ident() if in_main_thread else 0
        return self

    def __exit__(self, *error: Any) -> None:
        if isinstance(self._outer, InterruptSignals):
            self._outer._completions.remove(self._complete)
        super().__exit__(*error)

    @property
    def signal_name(self) -> str | None:
        """``"SIGTERM"`` or ``"SIGINT"`` after one has arrived, else None."""
        return (self._outer or self).received

    def deferring(self) -> contextlib.AbstractContextManager[None]:
        """Returns a context that a signal does not interrupt: it is handled at the end.

        Signals interrupt the main thread only, and only it can handle them.
        """
        signals = self._outer or self
        if threading.get_ident() != self._thread or not isinstance(signals, InterruptSignals):
            return _NO_DEFERRAL
        return signals._deferral

    def _receive(self) -> None:
        if not self._active or self.received is None or self._deferrals:
            return
        if self.received != "SIGTERM":
            self._restore()
            self.raise_received()
        if not self._claim.acquire(blocking=False):
            self._watch.join()  # the other thread ends the process
        self._deferrals += 1  # what completes the records must not come here again
        self._complete_all("SIGTERM", stuck=False)
        self._restore()
        os.kill(os.getpid(), signal.SIGTERM)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._watch.notice()
        super()._handle(number, frame)

    def _end_stuck(self, number: signal.Signals) -> None:
        # The handler may have run before this thread read of the signal.
        if self.received is not None or not self._claim.acquire(blocking=False):
            self._watch.notice()
            return
        self._complete_all(number.name, stuck=True)
        os._exit(128 + number)

    def _complete_all(self, name: str, *, stuck: bool) -> None:
        for complete in reversed(self._completions):
            with contextlib.suppress(Exception):
                complete(name, stuck)


class _WaitWatch(contextlib.AbstractContextManager[None]):
    """A context around each wait of the main thread; ends the wait when a signal is pending.

    It costs two additions for each wait.
    """

    def __init__(self, end_wait: Callable[[signal.Signals], None]) -> None:
        self._end_wait = end_wait
        self._patience = _PATIENCE_SECONDS
        self._numbers: Container[int] = _DEFAULTS
        self._changes = 0  # odd while waiting
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._pipe = -1, -1
        self._before = -1

    def __enter__(self) -> None:
        self._changes += 1

    def __exit__(self, *error: object) -> None:
        self._changes += 1

    def is_for(self, patience: float, numbers: Container[int]) -> None:
        """Sets how long a wait may last after a signal, in seconds, and the signals' numbers."""
        self._patience, self._numbers = patience, numbers

    def notice(self) -> None:
        """Notes that the main thread runs Python; it may go on to wait."""
        self._changes += 2

    def start(self) -> None:
        self._stopped.clear()
        self._pipe = os.pipe()
        os.set_blocking(self._pipe[1], False)  # set_wakeup_fd requires it
        thread = threading.Thread(target=self._watch, name="rec_summary-signals", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no room for another one
            for end in self._pipe:
                os.close(end)
            raise
        self._thread = thread
        self._before = signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)

    def join(self) -> None:
        """Waits for the thread to end."""
        if self._thread is not None:
            self._thread.join()

    def stop(self) -> None:
        signal.set_wakeup_fd(self._before)
        self._stopped.set()
        thread, self._thread = self._thread, None
        if thread is not None and thread.is_alive():  # a forked child does not have it
            os.write(self._pipe[1], b"\0")
            thread.join()
        for end in self._pipe:
            os.close(end)

    def _watch(self) -> None:
        while True:
            numbers = os.read(self._pipe[0], 64)
            if self._before != -1:  # for an event loop
                with contextlib.suppress(OSError):
                    os.write(self._before, numbers.replace(b"\0", b""))
            if 0 in numbers:
                return
            for number in numbers:
                if number in self._numbers:
                    self._end_stuck_wait(signal.Signals(number))

    def _end_stuck_wait(self, number: signal.Signals) -> None:
        # If the count changes, the main thread runs Python, and with it the handler.
        changes = self._changes
        while not self._stopped.wait(self._patience):
            if self._changes != changes:
                return
            if changes % 2:
                self._end_wait(number)


def _restore_sigint() -> None:
    """Restores the Python handler of SIGINT that MindSpore has replaced in C++."""
    handler = signal.getsignal(signal.SIGINT)
    if handler is not None:
        signal.signal(signal.SIGINT, handler)


def _raise(number: signal.Signals, *, quiet: bool = False) -> NoReturn:
    if number is not signal.SIGINT:
        raise SystemExit(128 + number)
    error = KeyboardInterrupt()
    if quiet:
        _print_no_traceback(error)
    raise error


def _print_no_traceback(error: BaseException) -> None:
    """Ends the process without a traceback if it ends with this error; the exit code stays."""
    before = sys.excepthook

    def hook(kind: type[BaseException], other: BaseException, traceback: Any) -> None:
        if other is not error:
            before(kind, other, traceback)

    sys.excepthook = hook


def end_waits() -> None:
    """Ends the waits of trainings for data, which then ask whether to stop. Thread-safe."""
    for signals in list(_entered):
        signals._end_wait()


# SIGTERM must still end a child that is forked during training (data workers, summary writers).
_entered: weakref.WeakSet[StopSignals] = weakref.WeakSet()


def _restore_in_child() -> None:
    for signals in list(_entered):
        signals._restore()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_restore_in_child)
