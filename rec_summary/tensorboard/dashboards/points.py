"""Points of TensorBoard series, the plugins that show them, and the base class of dashboards."""

from __future__ import annotations

import abc
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
from tensorboard.compat.proto import summary_pb2, tensor_pb2, types_pb2

from rec_summary._pb.summary_pb2 import Summary
from rec_summary.arrays import Array


@dataclass(frozen=True)
class Plugin:
    """A TensorBoard plugin, as the metadata of a series names it.

    The metadata states the data class, which both of TensorBoard's loaders and third-party
    readers understand. Source: `tensorflow/core/framework/summary.proto`, `SummaryMetadata`.

    Attributes:
        name: The plugin's name.
        dashboard: The name that users choose it by: `graphs` has several plugins.
        metadata: What the first value of a series carries.
        reserved: Whether its tags are the plugin's own, to be used as they are.
    """

    name: str
    dashboard: str
    metadata: Any
    reserved: bool = False


def plugin(name: str, data_class: int, content: bytes = b"", *, reserved: bool = False) -> Plugin:
    """Returns the plugin called `name`.

    Args:
        name: The plugin's name.
        data_class: A `summary_pb2.DataClass`.
        content: The plugin's own metadata of a series.
        reserved: As in `Plugin`.
    """
    data = summary_pb2.SummaryMetadata.PluginData(plugin_name=name, content=content)
    metadata = summary_pb2.SummaryMetadata(plugin_data=data, data_class=data_class)
    dashboard = "graphs" if name.startswith("graph_") else name
    return Plugin(name, dashboard, metadata, reserved)


SCALARS: Final = plugin("scalars", summary_pb2.DATA_CLASS_SCALAR)
HISTOGRAMS: Final = plugin("histograms", summary_pb2.DATA_CLASS_TENSOR)
TEXT: Final = plugin("text", summary_pb2.DATA_CLASS_TENSOR)

_TYPES: Final = {
    "float32": types_pb2.DT_FLOAT,
    "float64": types_pb2.DT_DOUBLE,
    "int32": types_pb2.DT_INT32,
    "uint8": types_pb2.DT_UINT8,
}


class Point(NamedTuple):
    """A value for TensorBoard.

    Attributes:
        tag: What the series is to be called.
        plugin: Whose series it is.
        value: TensorBoard's `Summary.Value`, still without tag and metadata; or a function that
            returns it, for a picture that is drawn only when a page shows it.
    """

    tag: str
    plugin: Plugin
    value: Any

    def rendered(self) -> Point:
        """Returns the point with its `Summary.Value`.

        Raises:
            ValueError: It cannot be drawn.
            ImportError: What draws it is not installed.
        """
        return self._replace(value=self.value()) if callable(self.value) else self


class ValueMapper(abc.ABC):
    """Makes points of the values of one kind in one TensorBoard run.

    Attributes:
        plugin: The plugin that shows a value under its own tag; None if there are several, or
            if the value is converted by more than its wire format.
        memory: What the mapper remembers; a later export continues with it.
        note: Why some values are not shown, if any are not.
    """

    plugin: ClassVar[Plugin | None] = None

    def __init__(self) -> None:
        """Begins with an empty memory."""
        self.memory: set[str] = set()
        self.note: str | None = None

    @abc.abstractmethod
    def __call__(self, tag: str, value: Summary.Value) -> Iterable[Point]:
        """Returns the points for a value recorded under `tag`.

        Raises:
            ValueError: The value cannot be shown.
        """

    def shows_more(self, tag: str) -> bool:
        """Whether a value recorded under `tag` becomes more than the one point of `plugin`."""
        return False


def tensor_value(values: Array | bytes | Sequence[bytes]) -> Any:
    """Returns a `Summary.Value` that holds a tensor.

    TensorBoard's `make_tensor_proto` is slow, and loads its file systems and what they need.

    Args:
        values: An array, a string of bytes, or several of them.
    """
    shape: Sequence[int] = ()
    if isinstance(values, np.ndarray):
        shape, dtype = values.shape, _TYPES[values.dtype.name]
        tensor = tensor_pb2.TensorProto(dtype=dtype, tensor_content=values.tobytes())
    elif isinstance(values, bytes):
        tensor = tensor_pb2.TensorProto(dtype=types_pb2.DT_STRING, string_val=[values])
    else:
        shape = (len(values),)
        tensor = tensor_pb2.TensorProto(dtype=types_pb2.DT_STRING, string_val=values)
    tensor.tensor_shape.SetInParent()
    for size in shape:
        tensor.tensor_shape.dim.add(size=size)
    return summary_pb2.Summary.Value(tensor=tensor)
