"""`SummaryLandscape`: from the checkpoints of a run to loss landscapes in its records.

Source: `mindspore.SummaryLandscape`.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from rec_summary import old_mindspore
from rec_summary._pb.summary_pb2 import Event, LossLandscape, Summary
from rec_summary.landscape.evaluate import (
    Engine,
    Model,
    Task,
    evaluate,
    forget,
    parse_engine,
    release_devices,
)
from rec_summary.landscape.files import write_files
from rec_summary.landscape.hessian import hessian_plane
from rec_summary.landscape.options import Options, changed, tag_of, wanted
from rec_summary.landscape.plane import Plane, pca_plane, random_plane
from rec_summary.landscape.point import CHECKPOINT_FOLDER, Metadata, read_metadata
from rec_summary.landscape.store import Store, locked
from rec_summary.landscape.trajectory import TOUCHED, Trajectory, choose
from rec_summary.records.writing.run_writer import RunWriter
from rec_summary.records.writing.task import MessageRecord
from rec_summary.values.landscape import from_landscape
from rec_summary.values.tensor import to_tensor

FOLDER: Final = "landscape"
REPLAY_NAME: Final = "replay.npz"  # as `training.replay` has it

Progress = Callable[[str, int, int], None]
"""Told the landscape at hand, its points that are known, and all its points."""

Make = Callable[[int | None], Model]


class SummaryLandscape:
    """Computes the loss landscapes of a run, a drop-in for MindSpore's class of this name.

    All learned parameters move, embedding tables among them; the loss is that of the network
    in evaluation mode; the same seed gives the same planes. What has been computed is kept in
    `<summary_dir>/landscape`, so that a computation that was killed goes on.
    """

    def __init__(self, summary_dir: str | os.PathLike[str]) -> None:
        """Names a record directory of a run with `collect_landscape`."""
        self._summary_dir = os.path.abspath(os.fspath(summary_dir))

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
        hessian: bool = False,
        files: Sequence[str] = (),
        progress: Progress | None = None,
    ) -> list[str]:
        """Computes the landscapes that the run was set up for, and records them.

        Args:
            callback_fn: Returns a model, its network, a data set and metrics (which are not
                used: the loss is the model's own). Or where it is, `module:function`.
            collect_landscape: What is to differ from what the run was set up for:
                `landscape_size`, `create_landscape`, `num_samples`, `intervals`.
            device_ids: The devices that workers share among themselves; None means the CPU.
            output: Where the records go; by default to `summary_dir`.
            seed: As in `Options`.
            parameters: As in `Options`.
            engine: As in `Options`.
            jobs: As in `Options`.
            replay: Whether the samples are the input rows that the run has frozen, if it has;
                otherwise they are read from the data set.
            hessian: As in `Options`.
            files: As in `Options`.
            progress: Told how far it is.

        Returns:
            The tags of the landscapes.

        Raises:
            SourceError: Metadata or a checkpoint is missing, or cannot be used.
            ValueError: An option cannot be meant.
            ModelError: The model cannot be made or evaluated. What is done so far is kept.
            BusyError: Another process computes the same landscape.
            ImportError: MindSpore cannot be imported.
        """
        old_mindspore.check()
        try:
            from rec_summary.landscape.mindspore_model import ModelMaker, device_target
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] != "mindspore":
                raise
            raise ImportError(
                "computing landscapes needs MindSpore, which is not installed: "
                "pip install 'rec_summary[mindspore,landscape]'"
            ) from error

        metadata = changed(read_metadata(self._summary_dir), collect_landscape or {})
        target = "CPU" if device_ids is None else device_target()
        rows = os.path.join(metadata.folder, REPLAY_NAME)
        make = ModelMaker(
            callback_fn,
            metadata.num_samples,
            device_target=target,
            replay=rows if replay and os.path.exists(rows) else "",
        )
        devices = tuple(device_ids or ())
        options = Options(seed, parameters, engine, jobs, devices, hessian, tuple(files))
        return self.compute(make, metadata, options, output=output, progress=progress)

    def compute(
        self,
        make: Make,
        metadata: Metadata,
        options: Options,
        *,
        output: str | os.PathLike[str] | None = None,
        progress: Progress | None = None,
    ) -> list[str]:
        """Computes landscapes of any model; arguments and errors as of
        `gen_landscapes_with_multi_process`.

        Args:
            make: Makes the model in each process; what it returns has `set` and `loss`.
            metadata: What the run has kept, and which landscapes are wanted.
            options: How they are computed.
            output: Where the records go.
            progress: Told how far it is.
        """
        engine = parse_engine(options.engine, options.jobs)
        target = self._summary_dir if output is None else os.fspath(output)
        tags = []
        for numbers, method in wanted(metadata, options):
            tag = tag_of(numbers, method)
            message = self._landscape(
                tag, numbers, method, make, metadata, options, engine, progress
            )
            _record(target, tag, message)
            if options.files:
                folder = os.path.join(target, FOLDER)
                write_files(folder, tag, from_landscape(message), options.files)
            tags.append(tag)
        return tags

    def clean_ckpt(self) -> None:
        """Removes the checkpoints, and what was computed of landscapes that are not complete."""
        for folder in (CHECKPOINT_FOLDER, FOLDER):
            shutil.rmtree(os.path.join(self._summary_dir, folder), ignore_errors=True)

    def _landscape(
        self,
        tag: str,
        numbers: Sequence[int],
        method: str,
        make: Make,
        metadata: Metadata,
        options: Options,
        engine: Engine,
        progress: Progress | None,
    ) -> LossLandscape:
        with Trajectory(metadata, numbers) as trajectory:
            names = choose(trajectory.names, trajectory.shape, options.parameters)
            size = metadata.landscape_size
            if method == "PCA":
                plane = pca_plane(trajectory, names, size)
            elif method == "Hessian":
                device = options.device_ids[0] if options.device_ids else None
                plane = hessian_plane(trajectory, names, size, options.seed, make(device))
            else:
                touched = options.parameters == TOUCHED
                plane = random_plane(trajectory, names, size, options.seed, touched_only=touched)
            plan = {
                "checkpoints": trajectory.fingerprint,
                "parameters": names,
                "method": method,
                "seed": options.seed,
                "size": size,
                "samples": metadata.num_samples,
                "model": getattr(make, "fingerprint", ""),
            }
        folder = os.path.join(self._summary_dir, FOLDER, _folder_name(tag, options))
        with locked(folder):
            store = Store(folder, plane, plan)
            plane = plane.without_vectors()  # workers map them from the disk
            self._fill(tag, store, make, options, engine, progress)
        return _message(plane, store, numbers, metadata, options, names)

    def _fill(
        self,
        tag: str,
        store: Store,
        make: Make,
        options: Options,
        engine: Engine,
        progress: Progress | None,
    ) -> None:
        task = Task(make, store.folder, options.device_ids)
        release_devices(task)
        done, total = int(store.known.sum()), len(store.points)
        try:
            if progress is not None:
                progress(tag, done, total)
            for indices, losses in evaluate(task, store.points, store.missing.tolist(), engine):
                store.put(indices, losses)
                done += len(indices)
                if progress is not None:
                    progress(tag, done, total)
        finally:
            store.save()
            release_devices(task)
            forget()


def _folder_name(tag: str, options: Options) -> str:
    digest = hashlib.sha256(f"{tag}/{options.parameters}/{options.seed}".encode()).hexdigest()
    return digest[:16]


def _message(
    plane: Plane,
    store: Store,
    numbers: Sequence[int],
    metadata: Metadata,
    options: Options,
    names: Sequence[str],
) -> LossLandscape:
    """Returns the record of a landscape, in MindSpore's form."""
    message = LossLandscape()
    _fill_points(message.landscape, plane.x, plane.y, store.grid)
    if len(plane.path):
        _fill_points(message.loss_path.points, plane.path[:, 0], plane.path[:, 1], store.path)
        message.loss_path.intervals.extend(numbers)
    _fill_points(message.convergence_point, [0.0], [0.0], store.path[-1:])
    about = message.metadata
    about.decomposition = plane.method
    about.unit = metadata.unit
    about.step_per_epoch = metadata.steps_per_epoch
    about.explained_variance.extend(plane.explained)
    about.samples = metadata.num_samples
    about.selection = options.parameters
    about.moved = plane.moved
    about.eigenvalues.extend(plane.eigenvalues)
    if plane.method != "PCA":
        about.seed = options.seed
    return message


def _fill_points(points: Any, x: Any, y: Any, z: Any) -> None:
    for name, array in zip("xyz", (x, y, z), strict=True):
        getattr(points, name).CopyFrom(to_tensor(np.asarray(array)))


def _record(directory: str, tag: str, message: LossLandscape) -> None:
    writer = RunWriter(directory)
    try:
        value = Summary.Value(tag=tag, loss_landscape=message)
        writer.write(
            MessageRecord(Event(wall_time=time.time(), step=0, summary=Summary(value=[value])))
        )
    finally:
        writer.close()
