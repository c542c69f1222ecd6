"""Units of work on an engine: in this process, in processes beside it, or on a cluster.

Each engine gives futures of `concurrent.futures`: joblib's loky, a client of Dask, tasks of Ray,
jobs of Spark. joblib's backends for these clusters do not suit many units: those of Ray and Spark
return nothing before all is done, and that of Dask does not say that a task is lost.

A unit is repeatable: done twice, it leaves the same. One whose worker was killed is done again.
"""

from __future__ import annotations

import bisect
import concurrent.futures
import contextlib
import functools
import gc
import importlib
import importlib.metadata
import logging
import multiprocessing
import os
import pickle
import socket
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from rec_summary.errors import RecSummaryError, SourceError, three_part, verbatim

NAMED: Final = "loky, sequential, dask://HOST:PORT, ray or spark"
_LIMIT: Final = "REC_SUMMARY_ENGINE_SECS"
_LIMIT_SECS: Final = 30.0
_RESTART: Final = 4  # times as long may pass until killed workers have been replaced
_POLL_SECS: Final = 0.5
_SHOWN: Final = 5  # failures in a message
_TRIES: Final = 3  # of a unit whose worker was killed; the second and third time it runs alone
_REFUSALS: Final = 8  # of a unit by workers that cannot do it
_MOST_LOSSES: Final = 4  # one after another, with no unit done between them
_BLOCKS_EACH: Final = 8  # blocks of a worker: enough to balance the work, with little overhead
_MOST_IN_BLOCK: Final = 64
_UNIT_COST: Final = 1 << 17  # bytes that could be read in the time that any unit takes
_SMALL: Final = 1 << 24  # bytes that are read before processes have started

logger = logging.getLogger("rec_summary")


class WorkerError(RecSummaryError):
    """Worker processes were killed, or cannot do the work."""


class EngineError(RecSummaryError):
    """An engine is not installed, cannot be reached, or has been lost."""


@dataclass(frozen=True)
class Engine:
    """What does the units of some work.

    Attributes:
        name: `loky`, `sequential` (this process), `dask`, `ray` or `spark`.
        address: The host and port of a cluster; empty for the one that the engine finds by itself,
            or starts on this machine.
        jobs: The most units at a time; -1 for as many as the engine has room for.
    """

    name: str = "loky"
    address: str = ""
    jobs: int = -1

    @property
    def is_cluster(self) -> bool:
        """Whether its workers may be on other machines."""
        return _KINDS[self.name].package is not None

    @property
    def workers(self) -> int:
        """The number of processes on this machine."""
        return self.jobs if self.jobs > 0 else _cores()

    def __str__(self) -> str:
        """Returns the engine as it is named."""
        return f"{self.name}://{self.address}" if self.address else self.name


HERE: Final = Engine("sequential")
"""This process."""


class PartialError(RecSummaryError):
    """Several units of some work failed; the others are done."""


class Outcome(NamedTuple):
    """The outcome of a unit: its number among the units, and its result or its error."""

    number: int
    result: Any = None
    error: Exception | None = None


def parse_engine(text: str, jobs: int = -1) -> Engine:
    """Returns the engine of a text such as `loky`, `sequential` or `dask://host:port`.

    Raises:
        ValueError: The text names no engine, or `jobs` is no number of workers.
    """
    name, mark, address = text.partition("://")
    host, _, port = address.rpartition(":")
    kind = _KINDS.get(name)
    is_bad = bool(mark) and (not host or not port.isdecimal() or "/" in address)
    if kind is None or is_bad or (mark and kind.package is None):
        raise ValueError(three_part("the engine", text, NAMED))
    if isinstance(jobs, bool) or not isinstance(jobs, int) or (jobs < 1 and jobs != -1):
        raise ValueError(three_part("jobs", jobs, "an int of at least 1"))
    return Engine(name, address, jobs)


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
    """Yields what becomes of units, each as soon as it is done.

    Args:
        engine: What does them.
        work: Does a unit. Workers get it by name, or whole if it is a function of `__main__`.
        units: The units.
        sizes: How many bytes each of them reads: the large ones are begun first, small ones are
            sent several at a time, and no process is started for little in all. Without sizes,
            each is sent alone.
        tries: How often a unit is tried by workers before its error counts.
        in_order: Whether they are yielded in the order of the units; few are held until then.
        kept: What a later run does with what is finished, for a message.
        ahead: Prepares units that are sent together, and yields them; it is sent along.

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
        pool = _connected(engine, len(units), stack)
        blocks = _blocks(len(units), costs, pool.workers, in_order)
        cloudpickle = importlib.import_module("cloudpickle")  # late: it loads a lot
        sent = cloudpickle.dumps((work, ahead, gc.get_threshold()))
        run = _Run(engine, pool, sent, units, blocks, tries, in_order, kept)
        stack.callback(run.cancel)
        yield from run.outcomes()


def is_here(engine: Engine, sizes: Sequence[int]) -> bool:
    """Whether units of these sizes, in bytes, are done in this process: little work starts none."""
    if engine.is_cluster:
        return False
    small = sum(sizes) + _UNIT_COST * len(sizes) < _SMALL
    return small or len(sizes) < 2 or engine.name == "sequential" or engine.workers < 2


def check_failures(failed: Mapping[str, Exception], count: int, done: str) -> None:
    """Raises the error of units that failed, after all others are done.

    Args:
        failed: The errors by the names of units.
        count: The number of all units.
        done: What could not be done with them, as a participle.

    Raises:
        PartialError: Several failed. If one did, its own error is raised.
    """
    if len(failed) == 1:
        raise next(iter(failed.values()))
    if failed:
        shown = "; ".join(f"{name}: {error}" for name, error in list(failed.items())[:_SHOWN])
        more = f"; and {len(failed) - _SHOWN:,} more" if len(failed) > _SHOWN else ""
        raise PartialError(f"{len(failed):,} of {count:,} runs could not be {done}. {shown}{more}")


def need_shared(path: str, what: str, *, exists: Callable[[str], bool] = os.path.isdir) -> None:
    """Makes sure that a worker has what is at a path.

    Raises:
        SourceError: It has not.
    """
    if not exists(path):
        received = verbatim(f"{path}, which is not on {socket.gethostname()}")
        expected = "a path on a file system that all workers share, or a URL"
        raise SourceError(three_part(what, received, expected))


@dataclass
class _Run:
    """Units that workers do; the attributes are as in `run_units`."""

    _engine: Engine
    _pool: _Pool
    _work: bytes
    _units: Sequence[Any]
    _blocks: deque[list[int]]
    _tries: int
    _in_order: bool
    _kept: str
    _pending: dict[Future[Any], list[int]] = field(default_factory=dict)
    _suspects: deque[int] = field(default_factory=deque)  # each is tried alone
    _losses: Counter[int] = field(default_factory=Counter)  # of units, as the next two
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
        payload = pickle.dumps((_run_block, self._work, [self._units[number] for number in block]))
        try:
            try:
                future = self._pool.submit(_begin, _version(), payload)
            except concurrent.futures.BrokenExecutor:  # since the last outcome
                if self._pending:
                    return False
                self._pool.renew()
                future = self._pool.submit(_begin, _version(), payload)
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
            elif time.monotonic() - since > _RESTART * _limit():
                reason = f"no worker for {_RESTART * _limit():.0f} seconds"
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
        expected = f"rec_summary {_version()} and the same modules as here, on each worker"
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
        received = "one that was killed, as the system does when memory runs out"
        if not isinstance(error, concurrent.futures.BrokenExecutor):
            received += f" ({type(error).__name__}: {_first_line(error)[:200]})"
        expected = f"processes that can finish: use fewer --jobs and run it again; {self._kept}"
        return WorkerError(three_part("a worker process", verbatim(received), expected))

    def _lost_error(self, error: BaseException) -> EngineError:
        received = verbatim(f"{self._engine}: it has been lost: {_first_line(error)}")
        expected = f"{_KINDS[self._engine.name].remedy}; {self._kept}"
        return EngineError(three_part("the engine", received, expected))


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]


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


# On the workers.


def _begin(version: str, payload: bytes) -> tuple[str, str, Any]:
    """Begins work; says who refuses it and why, if this worker has another version of the package.

    The function itself is sent, not its name, so it needs nothing of this package.
    """
    import importlib.metadata
    import pickle
    import socket
    import time

    where = socket.gethostname()
    try:
        installed = importlib.metadata.version("rec_summary")
    except importlib.metadata.PackageNotFoundError:
        installed = "is not installed"
    if installed != version:
        time.sleep(1)  # the units are for the others
        return where, f"rec_summary {installed}", None
    try:
        function, work, units = pickle.loads(payload)
        work = pickle.loads(work)
    except Exception as error:  # noqa: BLE001 - what a module does when it is imported
        time.sleep(1)
        return where, f"{type(error).__name__}: {error}", None
    return where, "", function(work, units)


_begin.__module__ = "__main__"  # so that every pickler sends it whole


def _run_block(
    work: tuple[Any, Any, tuple[int, int, int]], units: list[Any]
) -> list[tuple[Any, Exception | None]]:
    """Does units; an error of one is its outcome."""
    do, ahead, threshold = work
    outcomes: list[tuple[Any, Exception | None]] = []
    # A worker searches for cycles as rarely as the sender: thousands of runs have many objects.
    before = gc.get_threshold()
    gc.set_threshold(*threshold)
    try:
        for unit in ahead(units):
            try:
                outcomes.append((do(unit), None))
            except Exception as error:  # noqa: BLE001 - it is the caller's
                outcomes.append((None, _portable(error)))
    finally:
        gc.set_threshold(*before)
    return outcomes


def _portable(error: Exception) -> Exception:
    """Returns an error that can be sent: of the same class, if possible."""
    try:
        if str(pickle.loads(pickle.dumps(error))) == str(error):
            return error
    except Exception:  # noqa: BLE001 - classes take what they like
        pass
    name = "" if isinstance(error, RecSummaryError) else f"{type(error).__name__}: "
    return RecSummaryError(f"{name}{error}")


@functools.cache
def end_with_parent() -> None:
    """Ends this process when its parent dies; does nothing in a process without a parent.

    A parent that is killed cannot end its workers. They would go on writing after its locks are
    released, or keep their memory.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        if parent.sentinel is not None:
            parent.join()
        while os.getppid() == parent.pid:  # loky has no sentinel
            time.sleep(_POLL_SECS)
        os._exit(1)

    threading.Thread(target=watch, name="rec_summary-parent", daemon=True).start()


# Engines. Each gives a pool, when it has been reached.


@dataclass
class _Pool:
    """What takes units.

    Attributes:
        workers: How many it does at a time.
        submit: Takes a function and its arguments, and returns a future of `concurrent.futures`.
        tries: How often a unit is tried whose worker was killed.
    """

    workers: int
    submit: Callable[..., Future[Any]]
    tries: int = _TRIES

    def renew(self) -> bool:
        """Begins again; returns whether what it had is lost. Most engines replace one worker."""
        return False

    def is_alive(self) -> bool:
        """Whether there are workers, as far as is known."""
        return True


def _connected(engine: Engine, units: int, stack: contextlib.ExitStack) -> _Pool:
    """Returns the pool of an engine that is reached in time, and has done nothing once.

    Raises:
        EngineError: It has not.
        WorkerError: No worker has this version of the package.
    """
    kind = _KINDS[engine.name]
    if kind.package is None:
        return _Loky(min(engine.workers, units), stack)
    try:
        module = importlib.import_module(kind.package)
    except ImportError as error:
        expected = f"one that is installed: pip install 'rec_summary[{engine.name}]'"
        received = verbatim(f"{engine}: {error}")
        raise EngineError(three_part("the engine", received, expected)) from error
    try:
        # What starts a cluster here does it in this thread: processes of Ray end with theirs.
        connect = functools.partial(kind.connect, module, engine)
        pool = _in_time(engine.address, connect, stack) if engine.address else connect(stack)
        nothing = pickle.dumps((_run_block, pickle.dumps((None, iter, gc.get_threshold())), []))
        pool.submit(_begin, _version(), nothing).result(_limit())
    except RecSummaryError:
        raise
    except Exception as error:
        reason = _first_line(error) or f"no answer in {_limit():.0f} seconds"
        received = verbatim(f"{engine}: {type(error).__name__}: {reason}")
        raise EngineError(three_part("the engine", received, kind.remedy)) from error
    if engine.jobs > 0:
        pool.workers = min(pool.workers, engine.jobs)
    return pool


def _in_time(
    address: str, connect: Callable[[contextlib.ExitStack], _Pool], stack: contextlib.ExitStack
) -> _Pool:
    """Connects in time; an attempt that takes longer is left to a thread, which undoes it."""
    host, _, port = address.rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), _limit()).close()
    own = contextlib.ExitStack()
    attempt: Future[_Pool] = Future()

    def work() -> None:
        try:
            attempt.set_result(connect(own))
        except Exception as error:  # noqa: BLE001 - it is the caller's
            attempt.set_exception(error)

    threading.Thread(target=work, name="rec_summary-connect", daemon=True).start()
    try:
        pool = attempt.result(_limit())
    except BaseException:
        attempt.add_done_callback(lambda _: own.close())  # now, or when it ends
        raise
    stack.push(own)
    return pool


class _Loky(_Pool):
    """Processes on this machine; one that is killed breaks the pool."""

    def __init__(self, workers: int, stack: contextlib.ExitStack) -> None:
        self.workers = workers
        self.renew()
        stack.callback(lambda: self._pool.shutdown(wait=True, kill_workers=True))

    def renew(self) -> bool:
        loky = importlib.import_module("joblib.externals.loky")
        self._pool = loky.ProcessPoolExecutor(self.workers, initializer=end_with_parent)
        self.submit = self._pool.submit
        return True


class _Dask(_Pool):
    tries = 2  # of four workers each: the scheduler tries it again by itself

    def __init__(self, module: Any, engine: Engine, stack: contextlib.ExitStack) -> None:
        address = f"tcp://{engine.address}" if engine.address else None
        client = module.Client(address, timeout=_limit(), set_as_default=False)
        stack.callback(client.close)
        client.wait_for_workers(1, timeout=_limit())
        self._client, self._engine = client, engine
        self._choose()
        stack.callback(lambda: self._pool.shutdown(wait=False))

    def _choose(self) -> None:
        """Takes the workers that are there now and can do the units."""
        client, engine = self._client, self._engine
        workers = client.get_versions(packages=["rec_summary"])["workers"]
        local = (_version(), sys.version_info[:2])
        alike: list[Any] = []
        other: list[Any] = []
        for address, worker in workers.items():
            versions = worker["packages"].get("rec_summary"), worker["host"].get("python", "")
            python = tuple(int(part) for part in versions[1].split(".")[:2])
            (alike if (versions[0], python) == local else other).append((address, versions))
        for address, (package, python) in other:
            received = verbatim(f"{address}: rec_summary {package}, Python {python}")
            expected = f"rec_summary {local[0]}, Python {sys.version_info[0]}.{sys.version_info[1]}"
            message = three_part(f"a worker of {engine}", received, expected)
            if not alike:
                raise WorkerError(message)
            logger.warning("%s It gets no units.", message)
        chosen = {"workers": [address for address, _ in alike]} if other else {}
        self._chosen = set(chosen.get("workers", ()))
        self._pool = client.get_executor(pure=False, **chosen)
        self.submit = self._pool.submit
        self.workers = sum(client.nthreads(**chosen).values())

    def is_alive(self) -> bool:
        workers = self._live_workers()
        return bool(workers) and not (self._chosen and self._chosen.isdisjoint(workers))

    def _live_workers(self) -> Any:
        return self._client.nthreads() if self._client.status == "running" else {}

    def renew(self) -> bool:
        """Takes other workers for those that were chosen, which are gone."""
        before = self._pool
        with contextlib.suppress(WorkerError, OSError):  # others may come
            if self._live_workers():
                self._choose()
                before.shutdown(wait=False)
        return before is not self._pool


def _ray(module: Any, engine: Engine, stack: contextlib.ExitStack) -> _Pool:
    if not module.is_initialized():
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        address = f"ray://{engine.address}" if engine.address else None
        module.init(address, logging_level=logging.ERROR, log_to_driver=False)
        stack.callback(module.shutdown)
    begin = module.remote(max_retries=0)(_begin)  # `_Run` does it again
    refs: dict[Any, Any] = {}

    def submit(_: Any, *arguments: Any) -> Any:
        ref = begin.remote(*arguments)
        future = ref.future()
        refs[future] = ref
        future.add_done_callback(lambda done: refs.pop(done, None))
        return future

    def cancel() -> None:
        for ref in list(refs.values()):  # of a cluster that goes on without this process
            module.cancel(ref)

    stack.callback(cancel)
    return _Pool(max(1, int(module.cluster_resources().get("CPU", 1))), submit)


def _spark(module: Any, engine: Engine, stack: contextlib.ExitStack) -> _Pool:
    """Takes jobs of one task each, which threads wait for."""
    conf = module.SparkConf().setAppName("rec_summary")
    conf.set("spark.ui.showConsoleProgress", "false")
    if engine.address:
        conf.setMaster(f"spark://{engine.address}")
    else:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    is_new = module.SparkContext._active_spark_context is None
    context = module.SparkContext.getOrCreate(conf)
    if is_new:
        stack.callback(context.stop)
        context.setLogLevel("OFF")
    workers = max(1, context.defaultParallelism)
    threads = concurrent.futures.ThreadPoolExecutor(2 * workers)
    stack.callback(threads.shutdown, wait=False, cancel_futures=True)

    def job(begin: Any, *arguments: Any) -> Any:
        one = context.parallelize([0], 1)
        return one.map(lambda _: begin(*arguments)).collect()[0]

    return _Pool(workers, lambda *call: threads.submit(job, *call))


class _Kind(NamedTuple):
    """A kind of engine.

    Attributes:
        remedy: What is expected where it cannot be used, or is lost.
        package: What it needs; None if it works on this machine, without an address.
        connect: Returns the pool of a cluster; takes the package, the engine, and what ends it.
    """

    remedy: str
    package: str | None = None
    connect: Any = None


_KINDS: Final = {
    "loky": _Kind("processes that go on: use fewer --jobs and run it again"),
    "sequential": _Kind(""),
    "dask": _Kind(
        "a scheduler with workers: `dask scheduler` and `dask worker HOST:PORT` start them",
        "distributed",
        _Dask,
    ),
    "ray": _Kind(
        "a cluster of Ray, which `ray start --head` starts, or room to start one here", "ray", _ray
    ),
    "spark": _Kind(
        "a master with workers, or a Java runtime to run Spark here "
        "(Debian's default-jre-headless)",
        "pyspark",
        _spark,
    ),
}


@functools.cache
def _version() -> str:
    return importlib.metadata.version("rec_summary")


def _cores() -> int:
    return int(importlib.import_module("joblib").cpu_count())


def _limit() -> float:
    text = os.environ.get(_LIMIT) or str(_LIMIT_SECS)
    with contextlib.suppress(ValueError):
        if 0 < float(text) <= threading.TIMEOUT_MAX:
            return float(text)
    raise EngineError(three_part(_LIMIT, text, "a number of seconds above 0"))
