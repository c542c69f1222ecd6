"""A data provider served over gRPC, for `tensorboard --grpc_data_provider`.

Source: `tensorboard/data/proto/data_provider.proto`, and `tensorboard/data/grpc_provider.py`, which
is the client.
"""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

import grpc
from tensorboard import errors
from tensorboard.compat.proto import summary_pb2
from tensorboard.context import RequestContext
from tensorboard.data.proto import data_provider_pb2 as messages
from tensorboard.data.proto import data_provider_pb2_grpc as services
from tensorboard.data.provider import BlobSequenceTimeSeries, RunTagFilter
from tensorboard.util.tensor_util import make_tensor_proto

from rec_summary.errors import RecSummaryError, three_part
from rec_summary.tensorboard.provider.data_provider import MOST_BYTES, ScalarPoints

LOCALHOST: Final = "127.0.0.1"
_CHUNK_BYTES: Final = 1 << 20
_STOP_SECS: Final = 1.0
_CODES: Final = {
    errors.NotFoundError: grpc.StatusCode.NOT_FOUND,
    errors.InvalidArgumentError: grpc.StatusCode.INVALID_ARGUMENT,
}


class ServingError(RecSummaryError):
    """The port cannot be listened at."""


class GrpcServer:
    """Serves a data provider to programs on this machine, as a context.

    Attributes:
        address: Where it listens, for `--grpc_data_provider`.
    """

    def __init__(
        self, data_provider: Any, port: int = 0, *, workers: int = 8, unread_secs: float = 60.0
    ) -> None:
        """Prepares; entering starts it.

        Args:
            data_provider: What is served.
            port: The port to listen at; a free one by default.
            workers: How many calls are answered at the same time.
            unread_secs: The time after which an answer that its client does not read is dropped.

        Raises:
            ServingError: The port is in use.
        """
        pool = concurrent.futures.ThreadPoolExecutor(workers, "rec_summary-grpc")
        # Without this option, a second server could listen at the same port.
        options = [("grpc.so_reuseport", 0), ("grpc.max_send_message_length", MOST_BYTES)]
        self._server = grpc.server(pool, options=options)
        services.add_TensorBoardDataProviderServicer_to_server(
            _Servicer(data_provider, unread_secs), self._server
        )
        try:
            bound = self._server.add_secure_port(
                f"{LOCALHOST}:{port}", grpc.local_server_credentials()
            )
        except RuntimeError as error:
            expected = "a port that no other program uses"
            raise ServingError(three_part("the port to listen at", port, expected)) from error
        self.address = f"{LOCALHOST}:{bound}"

    def __enter__(self) -> GrpcServer:
        """Starts to serve."""
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(_STOP_SECS).wait()


def _call(method: Callable[[Any, Any, Any], Any]) -> Callable[..., Any]:
    """Makes a failure of the provider the status of the answer, and drops it if it is not read.

    Args:
        method: Takes the provider, the context for it and the request, and returns the answer.
    """

    def answer(servicer: Any, request: Any, context: Any) -> Any:
        try:
            response = method(servicer.provider, servicer.context, request)
            _drop_unread(context, servicer.unread_secs)
            return response
        except errors.PublicError as error:
            text = str(error).partition(": ")[2]  # the client adds its kind again
            context.abort(_CODES.get(type(error), grpc.StatusCode.UNKNOWN), text)

    return answer


def _drop_unread(context: Any, seconds: float) -> None:
    """Ends a call whose answer is not read: it holds memory, and a blob a thread."""
    timer = threading.Timer(seconds, context.cancel)
    timer.daemon = True
    if context.add_callback(timer.cancel):
        timer.start()


def _experiment(provider: Any, context: Any, request: Any) -> Any:
    metadata = provider.experiment_metadata(context, experiment_id=request.experiment_id)
    return messages.GetExperimentResponse(data_location=metadata.data_location)


def _plugins(provider: Any, context: Any, request: Any) -> Any:
    names = provider.list_plugins(context, experiment_id=request.experiment_id)
    return messages.ListPluginsResponse(plugins=[messages.Plugin(name=name) for name in names])


def _runs(provider: Any, context: Any, request: Any) -> Any:
    listed = provider.list_runs(context, experiment_id=request.experiment_id)
    runs = [messages.Run(name=run.run_name, start_time=run.start_time) for run in listed]
    return messages.ListRunsResponse(runs=runs)


def _blob(provider: Any, context: Any, request: Any) -> Any:
    return provider.read_blob(context, blob_key=request.blob_key)


def _listed(kind: str, data_class: int, response: Any) -> Callable[..., Any]:
    """Returns the method that lists the series of a kind."""

    def listed(provider: Any, context: Any, request: Any) -> Any:
        answer = response()
        available = getattr(provider, f"list_{kind}")(context, **_chosen(request))
        for run, tags in available.items():
            entry = answer.runs.add(run_name=run)
            for tag, series in tags.items():
                metadata = entry.tags.add(tag_name=tag).metadata
                metadata.max_step, metadata.max_wall_time = series.max_step, series.max_wall_time
                if isinstance(series, BlobSequenceTimeSeries):
                    metadata.max_length = series.max_length
                summary = metadata.summary_metadata
                summary.plugin_data.plugin_name = request.plugin_filter.plugin_name
                summary.data_class = data_class
                summary.plugin_data.content = series.plugin_content
                summary.summary_description = series.description
                summary.display_name = series.display_name
        return answer

    return _call(listed)


def _read(kind: str, response: Any, add: Callable[[Any, Any], None]) -> Callable[..., Any]:
    """Returns the method that reads the series of a kind; `add` adds the values of points."""

    def read(provider: Any, context: Any, request: Any) -> Any:
        answer = response()
        downsample = int(request.downsample.num_points)
        if not request.HasField("downsample") or downsample < 0:
            raise errors.InvalidArgumentError("downsample has to be given, and at least 0")
        method = getattr(provider, f"read_{kind}")
        for run, tags in method(context, downsample=downsample, **_chosen(request)).items():
            entry = answer.runs.add(run_name=run)
            for tag, points in tags.items():
                data = entry.tags.add(tag_name=tag).data
                if isinstance(points, ScalarPoints):  # there may be very many
                    data.step.extend(points.steps)
                    data.wall_time.extend(points.wall_times)
                    data.value.extend(points.values)
                else:
                    data.step.extend(point.step for point in points)
                    data.wall_time.extend(point.wall_time for point in points)
                    add(data, points)
        return answer

    return _call(read)


def _add_scalars(data: Any, points: Any) -> None:
    data.value.extend(point.value for point in points)


def _add_tensors(data: Any, points: Any) -> None:
    data.value.extend(make_tensor_proto(point.numpy) for point in points)


def _add_keys(data: Any, points: Any) -> None:
    for point in points:
        keys = [messages.BlobReference(blob_key=blob.blob_key) for blob in point.values]
        data.values.add(blob_refs=keys)


class _Servicer(services.TensorBoardDataProviderServicer):  # type: ignore[misc]
    def __init__(self, provider: Any, unread_secs: float) -> None:
        self.provider = provider
        self.unread_secs = unread_secs
        self.context = RequestContext()

    GetExperiment = _call(_experiment)
    ListPlugins = _call(_plugins)
    ListRuns = _call(_runs)
    ListScalars = _listed("scalars", summary_pb2.DATA_CLASS_SCALAR, messages.ListScalarsResponse)
    ListTensors = _listed("tensors", summary_pb2.DATA_CLASS_TENSOR, messages.ListTensorsResponse)
    ListBlobSequences = _listed(
        "blob_sequences",
        summary_pb2.DATA_CLASS_BLOB_SEQUENCE,
        messages.ListBlobSequencesResponse,
    )
    ReadScalars = _read("scalars", messages.ReadScalarsResponse, _add_scalars)
    ReadTensors = _read("tensors", messages.ReadTensorsResponse, _add_tensors)
    ReadBlobSequences = _read("blob_sequences", messages.ReadBlobSequencesResponse, _add_keys)
    _whole = _call(_blob)

    def ReadBlob(self, request: Any, context: Any) -> Iterator[Any]:
        blob = self._whole(request, context)
        for start in range(0, len(blob), _CHUNK_BYTES):
            yield messages.ReadBlobResponse(data=blob[start : start + _CHUNK_BYTES])


def _chosen(request: Any) -> dict[str, Any]:
    """Returns what a request selects, as arguments of a provider.

    Raises:
        InvalidArgumentError: It has no name of a plugin.
    """
    if not request.plugin_filter.plugin_name:
        raise errors.InvalidArgumentError("the name of a plugin has to be given")
    wanted = request.run_tag_filter
    return {
        "experiment_id": request.experiment_id,
        "plugin_name": request.plugin_filter.plugin_name,
        "run_tag_filter": RunTagFilter(
            runs=list(wanted.runs.names) if wanted.HasField("runs") else None,
            tags=list(wanted.tags.names) if wanted.HasField("tags") else None,
        ),
    }
