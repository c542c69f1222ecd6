"""Units of work, done one after another in this process, or by the workers of an engine.

Each engine gives futures of `concurrent.futures`: joblib's loky, a client of Dask, tasks of Ray,
jobs of Spark. joblib's backends for these clusters do not suit many units: those of Ray and Spark
return nothing before all is done, and that of Dask does not say that a task is lost.

A unit is idempotent: it may run twice, and does if its worker was killed.
"""

from __future__ import annotations

import bisect
import concurrent.futures
import contextlib
import logging
import os
import socket
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from rec_summary.engines.connection import connected
from rec_summary.engines.engine import Engine, EngineError, WorkerError, first_line, limit_secs
from rec_summary.engines.pool import Pool
from rec_summary.engines.worker import call_of, packed, version
from rec_summary.errors import RecSummaryError, SourceError, three_part, verbatim

_RESTART: Final = 4  # times as long may pass until killed workers have been replaced
_POLL_SECS: Final = 0.5
_SHOWN: Final = 5  # failures in a message
_REFUSALS: Final = 8  # of a unit by workers that cannot do it
_MOST_LOSSES: Final = 4  # one after another, with no unit done between them
_BLOCKS_EACH: Final = 8  # blocks of a worker: enough to balance the work, with little overhead
_MOST_IN_BLOCK: Final = 64
_UNIT_COST: Final = 1 << 17  # bytes that could be read in the time that any unit takes
_SMALL: Final = 1 << 24  # bytes that are read before processes have started

logger = logging.getLogger("rec_summary")


class PartialError(RecSummaryError):
    """Several units of some work failed; the others are done."""


class Outcome(NamedTuple):
    """The outcome of a unit: its number among the units, and its result or its error."""

    number: int
    result: Any = None
    error: Exception | None = None


def run_units(
    engine: Engine,
    work: Callable[[Any], Any],
    units: Sequence[Any],
    *,
    sizes: Sequence[int] = (),
    tries: int = 2,
    in_order: bool = False,
    kept: str = "it goes on where this one stopped",
    ahead: Callable[[list[Any]], Iterable[Any]] = iter,
) -> Iterator[Outcome]:
    """Yields the outcome of each unit as soon as it is known.

    Args:
        engine: Where the units run.
        work: Processes a unit. Workers get it by name, or whole if it is a function of `__main__`.
        units: The units.
        sizes: How many bytes each of them reads: the large ones are begun first, small ones are
            sent several at a time, and no process is started for little in all. Without sizes,
            each is sent alone.
        tries: How often a unit is tried by workers before its error counts.
        in_order: Whether they are yielded in the order of the units; few are held until then.
        kept: What a message says about the units that are finished.
        ahead: Prepares units that were sent together, on the worker, and yields them.

    Raises:
        EngineError: The engine is not installed, cannot be reached, or has been lost.
        WorkerError: Workers are killed one after another. What is finished was yielded.
    """
    if not units:
        return
    costs = [size + _UNIT_COST for size in sizes]
    if is_here(engine, sizes or [_SMALL] * len(units)):
        for index, unit in enumerate(units):
            try:
                outcome = Outcome(index, work(unit))
            except (RecSummaryError, OSError) as error:
                outcome = Outcome(index, None, error)
            yield outcome
        return
    with contextlib.ExitStack() as stack:
        pool = connected(engine, len(units), stack)
        blocks = _blocks(len(units), costs, pool.workers, in_order)
        run = _Execution(engine, pool, packed(work, ahead), units, blocks, tries, in_order, kept)
        stack.callback(run.cancel)
        yield from run.outcomes()


def is_here(engine: Engine, sizes: Sequence[int]) -> bool:
    """Whether units of these sizes, in bytes, run in this process: for little work, none starts."""
    if engine.is_cluster:
        return False
    small = sum(sizes) + _UNIT_COST * len(sizes) < _SMALL
    return small or len(sizes) < 2 or engine.name == "sequential" or engine.workers < 2


def check_failures(failed: Mapping[str, Exception], count: int, done: str) -> None:
    """Raises the error of units that failed, after all others are done.

    Args:
        failed: The errors by the names of units.
        count: The number of all units.
        done: What could not be done with them, as a participle such as `compacted`.

    Raises:
        PartialError: Several failed. If one did, its own error is raised.
    """
    if len(failed) == 1:
        raise next(iter(failed.values()))
    if failed:
        lines = [f"{len(failed):,} of {count:,} runs could not be {done}."]
        lines += [f"  {name}: {error}" for name, error in list(failed.items())[:_SHOWN]]
        lines += [f"  and {len(failed) - _SHOWN:,} more"] * (len(failed) > _SHOWN)
        raise PartialError("\n".join(lines))


def need_shared(path: str, what: str, *, exists: Callable[[str], bool] = os.path.isdir) -> None:
    """Checks on a worker that it has a path of the caller.

    Raises:
        SourceError: It does not have it.
    """
    if not exists(path):
        received = verbatim(f"{path}, which is not on {socket.gethostname()}")
        expected = "a path on a file system that all workers share, or a URL"
        raise SourceError(three_part(what, received, expected))


@dataclass
class _Execution:
    """Units that workers do; the attributes are as in `run_units`."""

    _engine: Engine
    _pool: Pool
    _work: bytes
    _units: Sequence[Any]
    _blocks: deque[list[int]]
    _tries: int
    _in_order: bool
    _kept: str
    _pending: dict[Future[Any], list[int]] = field(default_factory=dict)
    _suspects: deque[int] = field(default_factory=deque)  # each is tried alone
    _losses: Counter[int] = field(default_factory=Counter)  # by unit, as in the next two
    _refusals: Counter[int] = field(default_factory=Counter)
    _failures: Counter[int] = field(default_factory=Counter)
    _losses_in_a_row: int = 0
    _refusals_in_a_row: int = 0
    _due: int = 0  # the next unit of the order

    @property
    def _capacity(self) -> int:
        """How many blocks may be pending: one that each worker does, and one that waits for it."""
        return 2 * self._pool.workers

    def cancel(self) -> None:
        for future in self._pending:
            future.cancel()

    def outcomes(self) -> Iterator[Outcome]:
        early: dict[int, Outcome] = {}
        while self._blocks or self._suspects or self._pending:
            while self._may_send() and self._submit(self._blocks[0]):
                self._blocks.popleft()
            if not self._pending:
                self._submit([self._suspects.popleft()])
            for outcome in self._completed():
                if not self._in_order:
                    yield outcome
                    continue
                early[outcome.number] = outcome
                while self._due in early:
                    yield early.pop(self._due)
                    self._due += 1

    def _may_send(self) -> bool:
        """Whether there is room for the next block, and its outcomes are not held for long."""
        if not self._blocks or len(self._pending) >= self._capacity:
            return False
        first = self._blocks[0]
        return not self._in_order or first[0] <= self._due + self._capacity * len(first)

    def _submit(self, block: list[int]) -> bool:
        """Sends a block; returns False if the pool is broken and its pending blocks come first."""
        call = call_of(self._work, [self._units[number] for number in block])
        try:
            try:
                future = self._pool.submit(*call)
            except concurrent.futures.BrokenExecutor:  # since the last outcome
                if self._pending:
                    return False
                self._pool.renew()
                future = self._pool.submit(*call)
        except Exception as error:
            raise self._lost_error(error) from error
        self._pending[future] = block
        return True

    def _completed(self) -> Iterator[Outcome]:
        """Waits for workers, and yields the outcomes of units that are not tried again."""
        done = self._wait()
        lost = [future for future in done if _error_of(future) is not None]
        if any(isinstance(_error_of(future), concurrent.futures.BrokenExecutor) for future in lost):
            done, _ = concurrent.futures.wait(self._pending)  # all have the same fate
            self._pool.renew()
        self._losses_in_a_row = self._losses_in_a_row + 1 if lost else 0
        for future in done:
            block, error = self._pending.pop(future), _error_of(future)
            if error is not None:
                yield from self._retry_lost(block, error)
                continue
            where, refusal, results = future.result()
            if refusal:
                yield from self._retry_refused(block, where, refusal)
                continue
            self._losses_in_a_row = self._refusals_in_a_row = 0
            for index, (result, failure) in zip(block, results, strict=True):
                self._failures[index] += failure is not None
                if failure is not None and self._failures[index] < self._tries:
                    self._requeue([index])
                else:
                    yield Outcome(index, result, failure)

    def _wait(self) -> set[Future[Any]]:
        since = time.monotonic()
        while True:
            first = concurrent.futures.FIRST_COMPLETED
            done, _ = concurrent.futures.wait(self._pending, _POLL_SECS, first)
            if done:
                return done
            is_alive = self._pool.is_alive()
            if not is_alive and self._pool.renew():
                return {future for future in self._pending if future.cancel() or future.done()}
            if is_alive:
                since = time.monotonic()
            elif time.monotonic() - since > _RESTART * limit_secs():
                reason = f"no worker for {_RESTART * limit_secs():.0f} seconds"
                raise self._lost_error(TimeoutError(reason))

    def _requeue(self, block: list[int]) -> None:
        if self._in_order:
            bisect.insort(self._blocks, block)  # the unit that all others wait for is the first
        else:
            self._blocks.append(block)

    def _retry_lost(self, block: list[int], error: BaseException) -> Iterator[Outcome]:
        if self._losses_in_a_row >= _MOST_LOSSES:
            raise self._killed_error(error) from error
        if isinstance(error, concurrent.futures.CancelledError):
            self._requeue(block)  # the engine has not begun it
            return
        for index in block:
            self._losses[index] += 1
            if self._losses[index] < self._pool.tries:
                self._suspects.append(index)
            else:
                yield Outcome(index, None, self._killed_error(error))

    def _retry_refused(self, block: list[int], where: str, refusal: str) -> Iterator[Outcome]:
        received = verbatim(f"{where}: {refusal}")
        expected = f"rec_summary {version()} and the same modules as here, on each worker"
        error = WorkerError(three_part(f"a worker of {self._engine}", received, expected))
        if not self._refusals:
            logger.warning("%s Its units go to other workers.", error)
        self._refusals_in_a_row += 1
        if self._refusals_in_a_row > _REFUSALS * self._pool.workers:
            raise error
        for index in block:
            self._refusals[index] += 1
            if self._refusals[index] < _REFUSALS:
                self._requeue([index])
            else:
                yield Outcome(index, None, error)

    def _killed_error(self, error: BaseException) -> WorkerError:
        received = "one that was killed; the system kills processes when memory runs out"
        if not isinstance(error, concurrent.futures.BrokenExecutor):
            received += f" ({type(error).__name__}: {first_line(error)[:200]})"
        expected = f"processes that can finish: use fewer --jobs and run it again; {self._kept}"
        return WorkerError(three_part("a worker process", verbatim(received), expected))

    def _lost_error(self, error: BaseException) -> EngineError:
        received = verbatim(f"{self._engine}, which was lost: {first_line(error)}")
        expected = f"{self._pool.remedy}; {self._kept}"
        return EngineError(three_part("the engine", received, expected))


def _error_of(future: Future[Any]) -> BaseException | None:
    if future.cancelled():
        return concurrent.futures.CancelledError("the engine has given it up")
    return future.exception()


def _blocks(count: int, costs: Sequence[int], workers: int, in_order: bool) -> deque[list[int]]:
    """Returns the units to send together: as many blocks as balance the work."""
    if not costs:
        return deque([index] for index in range(count))
    order = range(count) if in_order else sorted(range(count), key=lambda number: -costs[number])
    share = sum(costs) / (workers * _BLOCKS_EACH)
    blocks: deque[list[int]] = deque()
    room = 0.0
    for index in order:
        if not blocks or costs[index] > room or len(blocks[-1]) >= _MOST_IN_BLOCK:
            blocks.append([])
            room = share
        blocks[-1].append(index)
        room -= costs[index]
    return blocks
