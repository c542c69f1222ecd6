"""TensorBoard's interface to the runs of an index.

Source: `tensorboard/data/provider.py`. No method returns None for "nothing": most plugins cannot
deal with that.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from tensorboard import errors
from tensorboard.compat.proto import summary_pb2
from tensorboard.data import provider
from tensorboard.util.tensor_util import make_ndarray

from rec_summary.tensorboard.provider.group_run import MeanSeries
from rec_summary.tensorboard.provider.run_index import RunIndex, location
from rec_summary.tensorboard.provider.served_run import ServedRun
from rec_summary.tensorboard.provider.served_series import (
    FixedSeries,
    PictureSeries,
    Reference,
    ScalarSeries,
    Series,
    StoredSeries,
)

KEY_PREFIX: Final = "rec_summary."
"""How the keys of blobs begin."""

MOST_BYTES: Final = 1 << 28
"""Bytes of an answer: TensorBoard's client takes no larger message."""

_IMAGE_BLOBS: Final = 3  # width, height, image
_NAMED: Final = ("scalars", "histograms", "images")  # as TensorBoard's own loader has it
_EVERYTHING: Final = 1 << 62
_POINT_BYTES: Final = 20  # of a scalar, in a message
_Drawn = StoredSeries | PictureSeries
_Found = dict[str, dict[str, Any]]


class ScalarPoints(Sequence[Any]):
    """Scalars as columns; a `ScalarDatum` is made where one is asked for.

    Attributes:
        steps: The steps.
        wall_times: Seconds since the epoch.
        values: The values.
    """

    def __init__(self, steps: list[int], wall_times: list[float], values: list[float]) -> None:
        """Holds columns of the same length."""
        self.steps, self.wall_times, self.values = steps, wall_times, values

    def __len__(self) -> int:
        return len(self.steps)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return list(self)[index]
        return provider.ScalarDatum(self.steps[index], self.wall_times[index], self.values[index])

    def __iter__(self) -> Iterator[Any]:
        return map(provider.ScalarDatum, self.steps, self.wall_times, self.values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]


class RecordDataProvider(provider.DataProvider):  # type: ignore[misc]
    """Answers what TensorBoard asks about the records of a tree."""

    def __init__(self, index: RunIndex) -> None:
        """Answers from an index, which someone keeps up to date."""
        self._index = index

    def __str__(self) -> str:
        return f"RecordDataProvider({location(self._index.source)})"

    def experiment_metadata(self, ctx: Any = None, *, experiment_id: str) -> Any:
        """Returns where the records are."""
        return provider.ExperimentMetadata(data_location=location(self._index.source))

    def list_plugins(self, ctx: Any = None, *, experiment_id: str) -> list[str]:
        """Returns the names of the plugins that have data."""
        return sorted({name for run in self._index.served() for name in run.plugins()})

    def list_runs(self, ctx: Any = None, *, experiment_id: str) -> list[Any]:
        """Returns the runs."""
        return [provider.Run(run.name, run.name, run.started) for run in self._index.served()]

    def list_scalars(
        self, ctx: Any = None, *, experiment_id: str, plugin_name: str, run_tag_filter: Any = None
    ) -> _Found:
        """Returns a `ScalarTimeSeries` for each run and tag."""
        return self._found(
            plugin_name,
            summary_pb2.DATA_CLASS_SCALAR,
            run_tag_filter,
            lambda run, tag, series: provider.ScalarTimeSeries(**_facts(run, tag, series)),
        )

    def read_scalars(
        self,
        ctx: Any = None,
        *,
        experiment_id: str,
        plugin_name: str,
        downsample: int | None = None,
        run_tag_filter: Any = None,
    ) -> _Found:
        """Returns a list of `ScalarDatum` for each run and tag.

        Raises:
            InvalidArgumentError: The answer would be too large, as in the methods below.
        """
        size = _Size()
        return self._found(
            plugin_name,
            summary_pb2.DATA_CLASS_SCALAR,
            run_tag_filter,
            lambda run, tag, series: _scalars(run, series, _most(downsample), size),
        )

    def read_last_scalars(
        self, ctx: Any = None, *, experiment_id: str, plugin_name: str, run_tag_filter: Any = None
    ) -> _Found:
        """Returns the last `ScalarDatum` for each run and tag."""
        size = _Size()
        return self._found(
            plugin_name,
            summary_pb2.DATA_CLASS_SCALAR,
            run_tag_filter,
            lambda run, tag, series: _scalars(run, series, 1, size)[-1],
        )

    def list_tensors(
        self, ctx: Any = None, *, experiment_id: str, plugin_name: str, run_tag_filter: Any = None
    ) -> _Found:
        """Returns a `TensorTimeSeries` for each run and tag."""
        return self._found(
            plugin_name,
            summary_pb2.DATA_CLASS_TENSOR,
            run_tag_filter,
            lambda run, tag, series: provider.TensorTimeSeries(**_facts(run, tag, series)),
        )

    def read_tensors(
        self,
        ctx: Any = None,
        *,
        experiment_id: str,
        plugin_name: str,
        downsample: int | None = None,
        run_tag_filter: Any = None,
    ) -> _Found:
        """Returns a list of `TensorDatum` for each run and tag."""
        size = _Size()
        found = self._found(
            plugin_name,
            summary_pb2.DATA_CLASS_TENSOR,
            run_tag_filter,
            lambda run, tag, series: (run, series, _places(series, _most(downsample)), size),
        )
        # Records are read while new ones can be added.
        return {
            run: {tag: list(_tensors(*each)) for tag, each in tags.items()}
            for run, tags in found.items()
        }

    def list_blob_sequences(
        self, ctx: Any = None, *, experiment_id: str, plugin_name: str, run_tag_filter: Any = None
    ) -> _Found:
        """Returns a `BlobSequenceTimeSeries` for each run and tag."""
        return self._found(
            plugin_name,
            summary_pb2.DATA_CLASS_BLOB_SEQUENCE,
            run_tag_filter,
            lambda run, tag, series: provider.BlobSequenceTimeSeries(
                max_length=_blobs(plugin_name), **_facts(run, tag, series)
            ),
        )

    def read_blob_sequences(
        self,
        ctx: Any = None,
        *,
        experiment_id: str,
        plugin_name: str,
        downsample: int | None = None,
        run_tag_filter: Any = None,
    ) -> _Found:
        """Returns a list of `BlobSequenceDatum` for each run and tag."""
        size = _Size()
        return self._found(
            plugin_name,
            summary_pb2.DATA_CLASS_BLOB_SEQUENCE,
            run_tag_filter,
            lambda run, tag, series: list(
                _keys(run, plugin_name, tag, _places(series, _most(downsample)), size)
            ),
        )

    def read_blob(self, ctx: Any = None, *, blob_key: str) -> bytes:
        """Returns a blob.

        Raises:
            InvalidArgumentError: The key is none of `read_blob_sequences`.
            NotFoundError: There is no such blob, or not any more.
        """
        run_name, plugin_name, tag, step, number = _parsed(blob_key)
        for run in self._index.served([run_name]):
            with run.lock:
                series = run.one(plugin_name, tag)
                place = series.at(step) if isinstance(series, _Drawn) else None
            if isinstance(series, _Drawn) and place is not None:
                tensor = run.tensor(series, place)
                if tensor is not None and 0 <= number < len(tensor.string_val):
                    return bytes(tensor.string_val[number])
        raise errors.NotFoundError("there is no such blob any more")

    def _found(
        self,
        plugin_name: str,
        data_class: int,
        wanted: Any,
        make: Callable[[ServedRun, str, Any], Any],
    ) -> _Found:
        """Returns what `make` makes of each series that is asked for, by run and tag."""
        runs = None if wanted is None else wanted.runs
        tags = None if wanted is None else wanted.tags
        found: _Found = {}
        for run in self._index.served(runs):
            with run.lock:
                for tag, series in run.series(plugin_name, data_class):
                    if tags is None or tag in tags:
                        found.setdefault(run.name, {})[tag] = make(run, tag, series)
        return found


def _facts(run: ServedRun, tag: str, series: Series) -> dict[str, Any]:
    step, wall_time = series.last() or (0, 0.0)
    return {
        "max_step": int(run.shown(step)),
        "max_wall_time": wall_time,
        "plugin_content": series.plugin.metadata.plugin_data.content,
        "description": series.plugin.metadata.summary_description,
        "display_name": tag if series.plugin.name in _NAMED else "",
    }


def _most(downsample: int | None) -> int:
    return _EVERYTHING if downsample is None else max(downsample, 0)


class _Size:
    """The size of an answer while it is made."""

    def __init__(self) -> None:
        self._nbytes = 0

    def add(self, nbytes: int) -> None:
        """Adds bytes.

        Raises:
            InvalidArgumentError: They are too many.
        """
        self._nbytes += nbytes
        if self._nbytes > MOST_BYTES:
            raise errors.InvalidArgumentError(
                f"the answer has more than {MOST_BYTES:,} bytes; ask for fewer runs, tags or steps"
            )


def _scalars(run: ServedRun, series: Any, most: int, size: _Size) -> ScalarPoints:
    assert isinstance(series, ScalarSeries | MeanSeries)  # by its data class
    points = series.points(most)
    size.add(len(points) * _POINT_BYTES)
    columns = (run.shown(points["step"]), points["wall_time"], points["value"])
    return ScalarPoints(*(column.tolist() for column in columns))


def _places(series: Series, most: int) -> list[Reference]:
    """Returns where the values of a series are; nowhere if it has one that is in memory."""
    return series.points(most) if isinstance(series, _Drawn) else []


def _tensors(run: ServedRun, series: Series, places: list[Reference], size: _Size) -> Iterator[Any]:
    if isinstance(series, FixedSeries):
        size.add(series.value.tensor.ByteSize())
        array = make_ndarray(series.value.tensor)
        yield provider.TensorDatum(int(run.shown(series.step)), series.wall_time, array)
        return
    assert isinstance(series, _Drawn)  # by its data class
    for place in places:
        tensor = run.tensor(series, place)
        if tensor is not None:
            size.add(tensor.ByteSize())
            step = int(run.shown(place.step))
            yield provider.TensorDatum(step, place.wall_time, make_ndarray(tensor))


def _keys(
    run: ServedRun, plugin_name: str, tag: str, places: list[Reference], size: _Size
) -> Iterator[Any]:
    for place in places:
        keys = [
            _key(run.name, plugin_name, tag, place.step, number)
            for number in range(_blobs(plugin_name))
        ]
        size.add(sum(map(len, keys)))
        references = tuple(map(provider.BlobReference, keys))
        yield provider.BlobSequenceDatum(int(run.shown(place.step)), place.wall_time, references)


def _blobs(plugin_name: str) -> int:
    """Returns how many blobs a value has."""
    return _IMAGE_BLOBS if plugin_name == "images" else 1


def _key(run: str, plugin_name: str, tag: str, step: int, number: int) -> str:
    """Returns the key of a blob. It names a series and a step, never a file."""
    data = json.dumps([run, plugin_name, tag, step, number]).encode("ascii")
    return KEY_PREFIX + base64.urlsafe_b64encode(data).decode("ascii").rstrip("=")


def _parsed(key: str) -> tuple[str, str, str, int, int]:
    try:
        encoded = key.removeprefix(KEY_PREFIX)
        data = json.loads(base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)))
        run, plugin_name, tag, step, number = data
        strings = all(isinstance(each, str) for each in (run, plugin_name, tag))
        numbers = isinstance(step, int) and isinstance(number, int)
        if strings and numbers and -(1 << 63) <= step < 1 << 63:
            return run, plugin_name, tag, step, number
    except (ValueError, TypeError, RecursionError):
        pass
    raise errors.InvalidArgumentError("not a key of a blob")
