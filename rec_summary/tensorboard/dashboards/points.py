"""What a dashboard mapping makes: values for TensorBoard, and the plugins they are for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from tensorboard.compat.proto import summary_pb2


@dataclass(frozen=True)
class Plugin:
    """A TensorBoard plugin, as the metadata of a series names it.

    The metadata states the data class, which both of TensorBoard's loaders and third-party
    readers understand. Source: `tensorflow/core/framework/summary.proto`, `SummaryMetadata`.

    Attributes:
        name: The plugin's name.
        metadata: What the first value of a series carries.
        reserved: Whether its tags are the plugin's own, to be used as they are.
    """

    name: str
    metadata: Any
    reserved: bool = False

    @property
    def dashboard(self) -> str:
        """The dashboard's name in `export.options.DASHBOARDS`: `graphs` has several plugins."""
        return "graphs" if self.name.startswith("graph_") else self.name


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
    return Plugin(name, metadata, reserved)


SCALARS: Final = plugin("scalars", summary_pb2.DATA_CLASS_SCALAR)
HISTOGRAMS: Final = plugin("histograms", summary_pb2.DATA_CLASS_TENSOR)
TEXT: Final = plugin("text", summary_pb2.DATA_CLASS_TENSOR)


class Point(NamedTuple):
    """A value for TensorBoard.

    Attributes:
        tag: What the series is to be called.
        plugin: Whose series it is.
        value: TensorBoard's `Summary.Value`, still without tag and metadata.
    """

    tag: str
    plugin: Plugin
    value: Any
