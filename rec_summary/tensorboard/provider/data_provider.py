"""TensorBoard's interface to the runs of an index, and to event files beside them.

Source: `tensorboard/data/provider.py`. No method returns None for "nothing": most plugins cannot
deal with that.
"""

from __future__ import annotations

import base64
import functools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from tensorboard import errors
from tensorboard.backend.event_processing import data_ingester
from tensorboard.compat.proto import summary_pb2
from tensorboard.data import provider, server_ingester
from tensorboard.util.tensor_util import make_ndarray

from rec_summary.checks import check_int
from rec_summary.series.limits import Step
from rec_summary.tensorboard import hparams_metrics
from rec_summary.tensorboard.provider.run_index import RunIndex, location
from rec_summary.tensorboard.provider.served_run import Place, ServedRun

KEY_PREFIX: Final = "rec_summary."
"""How the keys of blobs begin."""

MOST_BYTES: Final = 1 << 28
"""Bytes of an answer: TensorBoard's client takes no larger message."""

_BLOBS: Final = {"images": 3}  # width, height, image; a value of any other plugin has one
_NAMED: Final = ("scalars", "histograms", "images")  # as TensorBoard's own loader has it
_POINT_BYTES: Final = 20  # of a scalar, in a message
_ByRun = dict[str, dict[str, Any]]
_LOADERS: Final[list[Any]] = []  # a loader ends when nothing refers to it


@dataclass(frozen=True)
class ScalarPoints(Sequence[Any]):
    """Scalars as columns of the same length; a `ScalarDatum` is made where one is asked for.

    Attributes:
        steps: The steps.
        wall_times: Seconds since the epoch.
        values: The values.
    """

    steps: list[int]
    wall_times: list[float]
    values: list[float]

    def __len__(self) -> int:
        return len(self.steps)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return list(self)[index]
        return provider.ScalarDatum(self.steps[index], self.wall_times[index], self.values[index])

    def __iter__(self) -> Iterator[Any]:
        return map(provider.ScalarDatum, self.steps, self.wall_times, self.values)


def _with_others(method: Callable[..., _ByRun]) -> Callable[..., _ByRun]:
    """Adds what the other provider answers; where both have a series, that of records counts."""

    @functools.wraps(method)
    def answer(self: RecordDataProvider, ctx: object = None, **asked: Any) -> _ByRun:
        result = method(self, ctx, **asked)
        if self.other is not None:
            others = getattr(self.other, method.__name__)(ctx, **asked) or {}
            for run, tags in others.items():
                result[run] = {**tags, **result.get(run, {})}
        return result

    return answer


def _with_experiment(method: Callable[..., _ByRun]) -> Callable[..., _ByRun]:
    """Adds the tag that says which metrics matter, where HParams asks for all tags."""

    @functools.wraps(method)
    def answer(self: RecordDataProvider, ctx: object = None, **asked: Any) -> _ByRun:
        result = method(self, ctx, **asked)
        wanted = asked.get("run_tag_filter")
        is_all = wanted is None or (wanted.runs is None and wanted.tags is None)
        if not is_all or asked["plugin_name"] != hparams_metrics.PLUGIN:
            return result
        recorded = self.recorded(**{**asked, "plugin_name": "scalars"})
        return hparams_metrics.with_experiment(result, self, recorded)

    return answer


class RecordDataProvider(provider.DataProvider):  # type: ignore[misc]
    """Answers what TensorBoard asks about the records of a tree.

    Attributes:
        other: A provider whose runs are shown as well; None until it is ready.
    """

    def __init__(self, index: RunIndex, most_bytes: int = MOST_BYTES) -> None:
        """Answers from an index, which someone keeps up to date; at most so many bytes."""
        self._index = index
        self._most_bytes = most_bytes
        self.other: Any = None

    def __str__(self) -> str:
        return f"RecordDataProvider({location(self._index.source)})"

    def experiment_metadata(self, ctx: object = None, *, experiment_id: str) -> Any:
        """Returns where the records are."""
        return provider.ExperimentMetadata(data_location=location(self._index.source))

    def list_plugins(self, ctx: object = None, *, experiment_id: str) -> list[str]:
        """Returns the names of the plugins that have data."""
        plugins = {name for run in self._index.served() for name in run.plugins()}
        if self.other is not None:
            plugins.update(self.other.list_plugins(ctx, experiment_id=experiment_id) or ())
        return sorted(plugins)

    def list_runs(self, ctx: object = None, *, experiment_id: str) -> list[Any]:
        """Returns the runs, in the order in which they were begun."""
        runs = [provider.Run(run.name, run.name, run.started) for run in self._index.served()]
        listed = {run.run_id for run in runs}
        if self.other is not None:
            others = self.other.list_runs(ctx, experiment_id=experiment_id)
            runs.extend(run for run in others if run.run_id not in listed)
        # Other clients than TensorBoard rely on the order.
        return sorted(runs, key=lambda run: (run.start_time is None, run.start_time, run.run_id))

    @_with_others
    def list_scalars(self, ctx: object = None, **asked: Any) -> _ByRun:
        """Returns a `ScalarTimeSeries` for each run and tag."""
        return self._listed(summary_pb2.DATA_CLASS_SCALAR, provider.ScalarTimeSeries, asked)

    @_with_others
    def read_scalars(
        self, ctx: object = None, *, downsample: int | None = None, **asked: Any
    ) -> _ByRun:
        """Returns `ScalarPoints` for each run and tag.

        Raises:
            InvalidArgumentError: The answer would be too large, as in the methods below.
            TypeError: `downsample` is not an int; it has to be given.
            ValueError: It is negative.
        """
        most = check_int("downsample", downsample, 0)
        read = functools.partial(_scalars, most=most, size=_Size(self._most_bytes))
        return self._collect(summary_pb2.DATA_CLASS_SCALAR, read, **asked)

    @_with_others
    def read_last_scalars(self, ctx: object = None, **asked: Any) -> _ByRun:
        """Returns the last `ScalarDatum` for each run and tag."""
        size = _Size(self._most_bytes)
        return self._collect(
            summary_pb2.DATA_CLASS_SCALAR,
            lambda run, tag, series: _scalars(run, tag, series, 1, size)[-1],
            **asked,
        )

    @_with_experiment
    @_with_others
    def list_tensors(self, ctx: object = None, **asked: Any) -> _ByRun:
        """Returns a `TensorTimeSeries` for each run and tag."""
        return self._listed(summary_pb2.DATA_CLASS_TENSOR, provider.TensorTimeSeries, asked)

    @_with_others
    def read_tensors(
        self, ctx: object = None, *, downsample: int | None = None, **asked: Any
    ) -> _ByRun:
        """Returns a list of `TensorDatum` for each run and tag."""
        size, most = _Size(self._most_bytes), check_int("downsample", downsample, 0)
        answer = self._collect(
            summary_pb2.DATA_CLASS_TENSOR,
            lambda run, tag, series: (run, series, series.places(most), size),
            **asked,
        )
        # Records are read while new ones can be added.
        return {
            run: {tag: list(_tensors(*series)) for tag, series in tags.items()}
            for run, tags in answer.items()
        }

    @_with_others
    def list_blob_sequences(self, ctx: object = None, **asked: Any) -> _ByRun:
        """Returns a `BlobSequenceTimeSeries` for each run and tag."""
        make = functools.partial(
            provider.BlobSequenceTimeSeries, max_length=_BLOBS.get(asked["plugin_name"], 1)
        )
        return self._listed(summary_pb2.DATA_CLASS_BLOB_SEQUENCE, make, asked)

    @_with_others
    def read_blob_sequences(
        self, ctx: object = None, *, downsample: int | None = None, **asked: Any
    ) -> _ByRun:
        """Returns a list of `BlobSequenceDatum` for each run and tag."""
        size, most = _Size(self._most_bytes), check_int("downsample", downsample, 0)
        return self._collect(
            summary_pb2.DATA_CLASS_BLOB_SEQUENCE,
            lambda run, tag, series: [
                _blobs(run, series.plugin.name, tag, place, size) for place in series.places(most)
            ],
            **asked,
        )

    def read_blob(self, ctx: object = None, *, blob_key: str) -> bytes:
        """Returns a blob of the provider that made the key.

        Raises:
            InvalidArgumentError: The key is none of `read_blob_sequences`.
            NotFoundError: There is no such blob, or not any more.
        """
        if self.other is not None and not blob_key.startswith(KEY_PREFIX):
            blob: bytes = self.other.read_blob(ctx, blob_key=blob_key)
            return blob
        run_name, plugin_name, tag, step, number = _parsed(blob_key)
        for run in self._index.served([run_name]):
            with run.lock:
                series = run.find(plugin_name, tag, summary_pb2.DATA_CLASS_BLOB_SEQUENCE)
                place = None if series is None else series.at(step)
            if place is not None:
                tensor = series.tensor(place)
                if tensor is not None and 0 <= number < len(tensor.string_val):
                    return bytes(tensor.string_val[number])
        raise errors.NotFoundError("there is no such blob any more")

    def recorded(self, **asked: Any) -> set[str]:
        """Returns the tags of the scalars in records."""
        series = self._collect(summary_pb2.DATA_CLASS_SCALAR, lambda *_: None, **asked)
        return {tag for tags in series.values() for tag in tags}

    def _listed(self, data_class: int, make: Callable[..., Any], asked: dict[str, Any]) -> _ByRun:
        return self._collect(
            data_class, lambda run, tag, series: make(**_facts(run, tag, series)), **asked
        )

    def _collect(
        self,
        data_class: int,
        make: Callable[[ServedRun, str, Any], Any],
        *,
        experiment_id: str,
        plugin_name: str,
        run_tag_filter: Any = None,
    ) -> _ByRun:
        """Returns what `make` makes of each series that is asked for, by run and tag."""
        wanted = run_tag_filter or provider.RunTagFilter()
        answer: _ByRun = {}
        for run in self._index.served(wanted.runs):
            with run.lock:
                for tag, series in run.series(plugin_name, data_class):
                    if wanted.tags is None or tag in wanted.tags:
                        answer.setdefault(run.name, {})[tag] = make(run, tag, series)
        return answer


def _facts(run: ServedRun, tag: str, series: Any) -> dict[str, Any]:
    step, wall_time = series.last() or (0, 0.0)
    return {
        "max_step": int(run.shown(step)),
        "max_wall_time": wall_time,
        "plugin_content": series.plugin.metadata.plugin_data.content,
        "description": series.plugin.metadata.summary_description,
        "display_name": tag if series.plugin.name in _NAMED else "",
    }


class _Size:
    """The size of an answer while it is made."""

    def __init__(self, most: int) -> None:
        self._nbytes, self._most = 0, most

    def add(self, nbytes: int) -> None:
        """Adds bytes.

        Raises:
            InvalidArgumentError: They are too many.
        """
        self._nbytes += nbytes
        if self._nbytes > self._most:
            raise errors.InvalidArgumentError(
                f"the answer has more than {self._most:,} bytes; ask for fewer runs, tags or steps"
            )


def _scalars(run: ServedRun, tag: str, series: Any, most: int, size: _Size) -> ScalarPoints:
    points = series.points(most)
    size.add(len(points) * _POINT_BYTES)
    columns = (run.shown(points["step"]), points["wall_time"], points["value"])
    return ScalarPoints(*(column.tolist() for column in columns))


def _tensors(run: ServedRun, series: Any, places: list[Place], size: _Size) -> Iterator[Any]:
    for place in places:
        tensor = series.tensor(place)
        if tensor is not None:
            size.add(tensor.ByteSize())
            step = int(run.shown(place.step))
            yield provider.TensorDatum(step, place.wall_time, make_ndarray(tensor))


def _blobs(run: ServedRun, plugin_name: str, tag: str, place: Place, size: _Size) -> Any:
    keys = [
        _key(run.name, plugin_name, tag, place.step, number)
        for number in range(_BLOBS.get(plugin_name, 1))
    ]
    size.add(sum(map(len, keys)))
    references = tuple(map(provider.BlobReference, keys))
    return provider.BlobSequenceDatum(int(run.shown(place.step)), place.wall_time, references)


def _key(run: str, plugin_name: str, tag: str, step: int, number: int) -> str:
    """Returns the key of a blob. It names a series and a step, never a file."""
    data = json.dumps([run, plugin_name, tag, step, number]).encode("ascii")
    return KEY_PREFIX + base64.urlsafe_b64encode(data).decode("ascii").rstrip("=")


def _parsed(key: str) -> tuple[str, str, str, int, int]:
    encoded = key.removeprefix(KEY_PREFIX)
    try:
        data = base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
        return msgspec.json.decode(data, type=tuple[str, str, str, Step, int])
    except (ValueError, msgspec.DecodeError) as error:
        raise errors.InvalidArgumentError("not a key of a blob") from error


def add_event_files(records: RecordDataProvider, flags: Any) -> None:
    """Adds what TensorBoard itself would show of its log directory, by the loader it would use."""
    if flags.load_fast != "false" and "://" not in flags.logdir:
        try:
            fast = server_ingester.SubprocessServerDataIngester(
                server_binary=server_ingester.get_server_binary(),
                logdir=flags.logdir,
                reload_interval=flags.reload_interval,
                channel_creds_type=flags.grpc_creds_type,
                samples_per_plugin=flags.samples_per_plugin,
            )
            fast.start()
        except (server_ingester.NoDataServerError, server_ingester.DataServerStartupError):
            pass  # TensorBoard then takes its other loader
        else:
            _LOADERS.append(fast)
            records.other = fast.data_provider
            return
    slow = data_ingester.LocalDataIngester(flags)
    slow.start()
    records.other = slow.data_provider
