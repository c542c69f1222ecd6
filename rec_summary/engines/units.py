"""Units of work, done one after another in this process, or by the workers of an engine.

A unit is idempotent: it may run twice, and does if its worker was killed.
"""

from __future__ import annotations

import concurrent.futures
import functools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Future
from typing import Any, Final, NamedTuple

from rec_summary.engines.engine import Engine, EngineError, WorkerError, first_line
from rec_summary.engines.pools import Pool, dask_pool, loky_pool
from rec_summary.engines.worker import do_units
from rec_summary.errors import RecSummaryError, three_part, verbatim

_SHOWN: Final = 5  # failures in a message
_PENDING_EACH: Final = 2  # blocks of a worker: one that it does, and one that waits for it
_BLOCKS_EACH: Final = 8  # blocks of a worker: enough to balance the work, with little overhead
_MOST_IN_BLOCK: Final = 64
_UNIT_COST: Final = 1 << 17  # bytes that could be read in the time that any unit takes
_SMALL: Final = 1 << 24  # bytes that are read before processes have started


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
    in_order: bool = False,
    kept: str = "it goes on where this one stopped",
    ahead: Callable[[list[Any]], Iterable[Any]] = iter,
    shared: Sequence[tuple[str, str]] = (),
) -> Iterator[Outcome]:
    """Yields the outcome of each unit as soon as it is known.

    Args:
        engine: Where the units run.
        work: Processes a unit. Workers get it by name, or whole if it is a function of `__main__`.
        units: The units.
        sizes: How many bytes each of them reads: the large ones are begun first, small ones are
            sent several at a time, and no process is started for little in all. Without sizes,
            each is sent alone.
        in_order: Whether they are yielded in the order of the units; few are held until then.
        kept: What a message says about the units that are finished.
        ahead: Prepares units that were sent together, on the worker, and yields them.
        shared: Paths that all workers of a cluster need, each with what it is, for messages.

    Raises:
        EngineError: The engine is not installed, cannot be reached, or has been lost.
        WorkerError: Workers cannot do the work; or processes were killed, and again when the rest
            was sent to others. What is finished was yielded.
    """
    if not units:
        return
    if is_here(engine, sizes or [_SMALL] * len(units)):
        for index, unit in enumerate(units):
            try:
                outcome = Outcome(index, work(unit))
            except (RecSummaryError, OSError) as error:
                outcome = Outcome(index, None, error)
            yield outcome
        return
    call = functools.partial(do_units, work, ahead)
    costs = [size + _UNIT_COST for size in sizes]
    left: list[list[int]] = []
    for is_again in (False, True):
        cluster = dask_pool(engine, shared, work) if engine.is_cluster else None
        try:
            with cluster or loky_pool(min(engine.workers, len(units))) as pool:
                left = left or _blocks(len(units), costs, pool.workers, in_order)
                for block, future in _finished(pool, call, units, left, in_order):
                    yield from _outcomes(block, future, kept)
                    left.remove(block)
                return
        except BrokenExecutor as error:  # nothing more of this pool will be done
            if is_again:
                raise _killed_error(error, kept) from error
        except (OSError, RuntimeError, CancelledError) as error:
            received = verbatim(f"{engine}, which was lost: {first_line(error)}")
            expected = f"one that stays: use fewer --jobs, or see to the scheduler; {kept}"
            raise EngineError(three_part("the engine", received, expected)) from error


def is_here(engine: Engine, sizes: Iterable[int]) -> bool:
    """Whether units of these sizes, in bytes, run in this process: for little work, none starts."""
    if engine.is_cluster:
        return False
    if engine.name == "sequential" or engine.workers < 2:
        return True
    costs = [size + _UNIT_COST for size in sizes]
    return len(costs) < 2 or sum(costs) < _SMALL


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


def _finished(
    pool: Pool,
    call: Callable[[list[Any]], Any],
    units: Sequence[Any],
    blocks: Sequence[list[int]],
    in_order: bool,
) -> Iterator[tuple[list[int], Future[Any]]]:
    """Sends blocks of units, and yields each with its future when that is done."""
    waiting = deque(blocks)
    pending: dict[Future[Any], list[int]] = {}
    while waiting or pending:
        while waiting and len(pending) < _PENDING_EACH * pool.workers:
            block = waiting.popleft()
            pending[pool.submit(call, [units[number] for number in block])] = block
        awaited = list(pending)[: 1 if in_order else None]
        done, _ = concurrent.futures.wait(awaited, return_when=concurrent.futures.FIRST_COMPLETED)
        for future in done:
            yield pending.pop(future), future


def _outcomes(block: list[int], future: Future[Any], kept: str) -> Iterator[Outcome]:
    """Yields the outcomes of units that were sent together.

    Raises:
        BrokenExecutor: A process of the pool was killed.
        CancelledError: The cluster has been lost.
    """
    try:
        results = future.result()
    except (BrokenExecutor, CancelledError):
        raise
    except Exception as error:  # noqa: BLE001 - of the engine: it has tried other workers in vain
        results = [(None, _killed_error(error, kept))] * len(block)
    for number, (result, failure) in zip(block, results, strict=True):
        yield Outcome(number, result, failure)


def _killed_error(error: BaseException, kept: str) -> WorkerError:
    received = "one that was killed; the system kills processes when memory runs out"
    if not isinstance(error, BrokenExecutor):
        received += f" ({type(error).__name__}: {first_line(error)[:200]})"
    expected = f"processes that can finish: use fewer --jobs and run it again; {kept}"
    return WorkerError(three_part("a worker process", verbatim(received), expected))


def _blocks(count: int, costs: Sequence[int], workers: int, in_order: bool) -> list[list[int]]:
    """Returns the units to send together: as many blocks as balance the work."""
    if not costs:
        return [[index] for index in range(count)]
    order = range(count) if in_order else sorted(range(count), key=lambda number: -costs[number])
    share = sum(costs) / (workers * _BLOCKS_EACH)
    blocks: list[list[int]] = []
    room = 0.0
    for index in order:
        if not blocks or costs[index] > room or len(blocks[-1]) >= _MOST_IN_BLOCK:
            blocks.append([])
            room = share
        blocks[-1].append(index)
        room -= costs[index]
    return blocks
