"""`SummaryLandscape`: computes loss landscapes from the checkpoints of a run and records them.

Source: `mindspore.SummaryLandscape`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from rec_summary import old_mindspore
from rec_summary._pb.summary_pb2 import Event, LossLandscape, Summary
from rec_summary.checks import check_pattern
from rec_summary.engines.engine import Engine, parse_engine
from rec_summary.landscape.checkpoints import SELECTIONS, TOUCHED, Trajectory, choose
from rec_summary.landscape.evaluate import EvaluationTask, ModelFactory, evaluate, forget
from rec_summary.landscape.metadata import Metadata, check_changes, read_metadata
from rec_summary.landscape.plane import PCA, RANDOM, Plane, learned, pca_plane, random_plane
from rec_summary.landscape.store import Store, locked
from rec_summary.records import checkpoints
from rec_summary.records.files import refuse_link
from rec_summary.records.reading.runs import directories_below, list_directory
from rec_summary.records.writing.record import MessageRecord
from rec_summary.records.writing.run_writer import RunWriter
from rec_summary.values.tensor import to_tensor

FOLDER: Final = "landscape"

LandscapeProgress = Callable[[str, int, int], None]
"""Receives the tag of a landscape, the number of its known points, and that of all its points."""


@dataclass(frozen=True)
class Options:
    """Options of a computation.

    Attributes:
        seed: The seed of random planes.
        parameters: The parameters that move: `all`; `dense`, without embedding tables; `touched`,
            which moves only the rows of embedding tables that differ between checkpoints; or a
            regular expression that is searched in their names.
        engine: The engine that evaluates points: `loky`, `sequential` or `dask://HOST:PORT`.
        jobs: The number of workers; -1 for one on each core.
        device_ids: The devices that the workers share.
    """

    seed: int = 1
    parameters: str = "all"
    engine: str = "loky"
    jobs: int = -1
    device_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Checks.

        Raises:
            ValueError: The choice of parameters is not a regular expression.
        """
        check_pattern("the choice of parameters", self.parameters)

    def parsed(self) -> Engine:
        """Returns the engine; raises ValueError if there is no such engine."""
        return parse_engine(self.engine, self.jobs)


class SummaryLandscape:
    """Computes the loss landscapes of a run, a drop-in for MindSpore's class of this name.

    All learned parameters move, including embedding tables: those that differ between checkpoints,
    if there are several. The loss is that of the network in evaluation mode. The same seed gives
    the same planes. Computed losses are stored in `<summary_dir>/landscape`, so that a killed
    computation continues.
    """

    def __init__(self, summary_dir: str | os.PathLike[str]) -> None:
        """Sets the record directory, of a run with `collect_landscape`."""
        self._summary_dir = os.path.abspath(os.path.expanduser(summary_dir))

    def gen_landscapes_with_multi_process(
        self,
        callback_fn: Callable[[], Any] | str,
        collect_landscape: Mapping[str, Any] | None = None,
        device_ids: Sequence[int] | None = None,
        output: str | os.PathLike[str] | None = None,
        *,
        seed: int = 1,
        parameters: str = "all",
        engine: str = "loky",
        jobs: int = -1,
        replay: bool = True,
        progress: LandscapeProgress | None = None,
    ) -> list[str]:
        """Computes the landscapes that the run was configured for, and records them.

        Args:
            callback_fn: Returns a model, its network, a data set and metrics (which are not used,
                because the loss is that of the model); or its name as `module:function`.
            collect_landscape: Changes of the configuration of the run: `landscape_size`,
                `create_landscape`, `num_samples`, `intervals`.
            device_ids: The devices that the workers share; None stands for the CPU.
            output: The directory of the records; by default `summary_dir`.
            seed: As in `Options`.
            parameters: As in `Options`.
            engine: As in `Options`.
            jobs: As in `Options`.
            replay: Whether to use the input rows that the run stored, if there are any. Otherwise
                the samples are read from the data set.
            progress: Receives the progress, see `LandscapeProgress`.

        Returns:
            The tags of the landscapes.

        Raises:
            SourceError: Metadata or a checkpoint is missing or unusable.
            ValueError: An option is invalid.
            ModelError: The model cannot be created or evaluated. Computed losses are kept.
            BusyError: Another process computes the same landscape.
            ImportError: MindSpore cannot be imported.
        """
        old_mindspore.check()
        try:
            from rec_summary.landscape.mindspore_model import (
                ModelMaker,
                device_target,
                imported,
                sendable,
            )
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] != "mindspore":
                raise
            raise ImportError(
                "computing landscapes needs MindSpore, which is not installed: "
                "pip install 'rec_summary[mindspore]'"
            ) from error

        options = Options(seed, parameters, engine, jobs, tuple(device_ids or ()))
        changes, is_cluster = check_changes(collect_landscape), options.parsed().is_cluster
        metadata = replace(read_metadata(self._summary_dir), **changes)
        target = "CPU" if device_ids is None else device_target()
        rows = os.path.join(metadata.folder, checkpoints.REPLAY_NAME)
        rows = rows if replay and os.path.exists(rows) else ""
        if is_cluster:
            callback_fn = sendable(callback_fn)
        elif isinstance(callback_fn, str):
            imported(callback_fn)  # a mistake is an error here, before workers start
        make = ModelMaker(callback_fn, metadata.num_samples, device_target=target, replay=rows)
        return self.compute(make, metadata, options, output=output, progress=progress)

    def compute(
        self,
        make: ModelFactory,
        metadata: Metadata,
        options: Options,
        *,
        output: str | os.PathLike[str] | None = None,
        progress: LandscapeProgress | None = None,
    ) -> list[str]:
        """Computes landscapes of any model; errors as of `gen_landscapes_with_multi_process`.

        Args:
            make: Creates the model in each process.
            metadata: The metadata of the run, and the landscapes to compute.
            options: The options.
            output: The directory of the records; by default `summary_dir`.
            progress: Receives the progress, see `LandscapeProgress`.

        Returns:
            The tags of the landscapes.
        """
        target = self._summary_dir if output is None else os.path.expanduser(output)
        stores = os.path.join(self._summary_dir, FOLDER)
        computation = _Computation(stores, make, metadata, options, options.parsed(), progress)
        tags = []
        # In MindSpore's order.
        paths = metadata.intervals if metadata.train else ()
        plans = [(PCA, f"landscape_{[group[0], group[-1]]}", group) for group in paths]
        if metadata.result and metadata.intervals:
            # All checkpoints of the group, because they show which rows of tables were touched.
            last = metadata.intervals[-1]
            plans.append((RANDOM, f"landscape_{[last[-1]]}", last))
        for method, tag, numbers in plans:
            _record(target, tag, computation.run(method, tag, numbers))
            tags.append(tag)
        return tags

    def clean_ckpt(self) -> None:
        """Removes the checkpoints and the stored losses; other files in their directory stay."""
        shutil.rmtree(os.path.join(self._summary_dir, checkpoints.FOLDER), ignore_errors=True)
        stores = os.path.join(self._summary_dir, FOLDER)
        with contextlib.suppress(OSError):
            refuse_link(stores)
            for path in directories_below(list_directory(stores)):
                shutil.rmtree(path, ignore_errors=True)
        with contextlib.suppress(OSError):
            os.rmdir(stores)  # unless there are other files


@dataclass(frozen=True)
class _Computation:
    """Computes landscapes of one run; `folder` is the directory of their stores."""

    folder: str
    make: ModelFactory
    metadata: Metadata
    options: Options
    engine: Engine
    progress: LandscapeProgress | None

    def run(self, method: str, tag: str, numbers: Sequence[int]) -> LossLandscape:
        """Returns the record of a landscape.

        Args:
            method: The method that chooses the plane: `PCA` or `RANDOM`.
            tag: Its tag.
            numbers: The numbers of its checkpoints; the plane goes through the last one.
        """
        options, size = self.options, self.metadata.landscape_size
        with Trajectory(self.metadata, numbers) as trajectory:
            names = choose(trajectory, options.parameters)
            if method == PCA:
                plane = pca_plane(trajectory, names, size)
            else:
                if options.parameters in SELECTIONS:
                    names = learned(trajectory, names)  # the path moves no others anyway
                touched = options.parameters == TOUCHED
                plane = random_plane(trajectory, names, size, options.seed, touched_only=touched)
            plan = {
                "checkpoints": trajectory.fingerprint,
                "parameters": names,
                "method": method,
                "seed": options.seed,
                "size": size,
                "samples": self.metadata.num_samples,
                "model": self.make.fingerprint,
            }
        folder = os.path.join(self.folder, _folder_name(tag, options))
        moved = sum(direction.size for direction in plane.first.values())
        with locked(folder):
            store = Store(folder, plane, plan)
            # Frees the memory: workers map the vectors from the disk.
            plane = replace(plane, origin={}, first={}, second={})
            self._fill(tag, store)
        return self._message(method, plane, store, numbers, moved)

    def _fill(self, tag: str, store: Store) -> None:
        """Evaluates the unknown points of a store."""
        task = EvaluationTask(self.make, store.folder, self.options.device_ids)
        try:
            self._report(tag, store)
            missing = store.missing.tolist()
            for block in evaluate(task, store.points, missing, self.engine):
                store.put(*block)
                self._report(tag, store)
        finally:
            store.save()
            forget()

    def _message(
        self, method: str, plane: Plane, store: Store, numbers: Sequence[int], moved: int
    ) -> LossLandscape:
        """Returns the record of a landscape in MindSpore's format."""
        message = LossLandscape()
        _fill_points(message.landscape, plane.x, plane.y, store.grid)
        if len(plane.path):
            _fill_points(message.loss_path.points, plane.path[:, 0], plane.path[:, 1], store.path)
            field = "intervals" if max(numbers) < 1 << 31 else "intervals64"
            getattr(message.loss_path, field).extend(numbers)
        _fill_points(message.convergence_point, [0.0], [0.0], store.path[-1:])
        about = message.metadata
        about.decomposition = method
        about.unit = self.metadata.unit
        about.step_per_epoch = self.metadata.steps_per_epoch
        about.explained_variance.extend(plane.explained)
        about.samples = store.samples
        about.selection = self.options.parameters
        about.moved = moved
        if method != PCA:
            about.seed = self.options.seed
        return message

    def _report(self, tag: str, store: Store) -> None:
        if self.progress is not None:
            self.progress(tag, len(store.points) - len(store.missing), len(store.points))


def _folder_name(tag: str, options: Options) -> str:
    digest = hashlib.sha256(f"{tag}/{options.parameters}/{options.seed}".encode()).hexdigest()
    return digest[:16]


def _fill_points(points: Any, x: Any, y: Any, z: Any) -> None:
    for name, array in zip("xyz", (x, y, z), strict=True):
        getattr(points, name).CopyFrom(to_tensor(np.asarray(array)))


def _record(directory: str, tag: str, message: LossLandscape) -> None:
    with contextlib.closing(RunWriter(directory)) as writer:
        value = Summary.Value(tag=tag, loss_landscape=message)
        writer.write(
            MessageRecord(Event(wall_time=time.time(), step=0, summary=Summary(value=[value])))
        )
