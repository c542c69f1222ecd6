"""TensorBoard's Projector, which shows the embedding tables of records as well.

TensorBoard's Projector reads files of the log directory by itself: there is no interface for other
tables. So its answers are extended: what the page asks about a run of records is answered from
checkpoints and recorded tensors, and everything else as before. Nothing is written.
Source: `tensorboard/plugins/projector/projector_plugin.py`.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Callable
from typing import Any, Final

from tensorboard.backend.http_util import Respond
from tensorboard.plugins.projector import projector_plugin
from werkzeug import Request, Response

from rec_summary.errors import RecSummaryError
from rec_summary.landscape.checkpoints import is_table
from rec_summary.series.text import reason
from rec_summary.tensorboard.embedding_tables import TableRows, Tables, newest_checkpoint, tables_of
from rec_summary.tensorboard.provider.run_index import RunIndex
from rec_summary.tensorboard.provider.served_outputs import ServedRuns

_EXTENDED: Final = "rec_summary_extended"  # an attribute
_KIND: Final = "tensor"
_PATIENCE_SECS: Final = 0.2  # of a listing of pages, which waits for the search


def extend_projector(context: Any, index: RunIndex) -> None:
    """Makes the Projector of a TensorBoard show tables of records, if it is loaded by now.

    TensorBoard loads plugins in any order. It asks them for their routes later, in the same order.

    Args:
        context: What TensorBoard gives to the loaders of plugins.
        index: Has the records.
    """
    plugins = context.plugin_name_to_instance or {}
    own = plugins.get(projector_plugin.ProjectorPlugin.plugin_name)
    if own is not None and not hasattr(own, _EXTENDED):
        extended = RecordsProjector(own, index)
        own.get_plugin_apps, own.is_active = extended.get_plugin_apps, extended.is_active
        setattr(own, _EXTENDED, True)


class RecordsProjector:
    """The answers of a Projector with those about records before them."""

    def __init__(self, own: Any, index: RunIndex) -> None:
        """Prepares.

        Args:
            own: TensorBoard's plugin.
            index: Has the records; someone keeps it up to date.
        """
        self._index = index
        self._own_apps: dict[str, Any] = own.get_plugin_apps()
        self._own_is_active: Callable[[], bool] = own.is_active
        self._has_tables = False
        self._search: threading.Thread | None = None

    def get_plugin_apps(self) -> dict[str, Any]:
        """Returns the routes: the page's own files, and what it asks."""
        answers: dict[str, Callable[[Request], Response]] = {
            route: functools.partial(self._answered, route, answer)
            for route, answer in _ANSWERS.items()
        }
        answers[projector_plugin.RUNS_ROUTE] = self._runs
        apps = {route: Request.application(answer) for route, answer in answers.items()}
        return self._own_apps | apps

    def is_active(self) -> bool:
        """Whether a run has a table; a thread looks for one, since that may take long."""
        is_own = self._own_is_active()
        if not self._has_tables and (self._search is None or not self._search.is_alive()):
            self._search = threading.Thread(target=self._find_tables, daemon=True)
            self._search.start()
            self._search.join(_PATIENCE_SECS)
        return self._has_tables or is_own

    def _find_tables(self) -> None:
        self._has_tables = any(_shows(record) for record in self._recorded_runs().values())

    def _recorded_runs(self) -> dict[str, ServedRuns]:
        """Returns the recorded runs by name."""
        return {loader.run.name: loader for loader in self._index.recorded()}

    def _runs(self, request: Request) -> Response:
        names = [name for name, record in self._recorded_runs().items() if _shows(record)]
        own = self._own(projector_plugin.RUNS_ROUTE, request).get_json()
        return _response(request, list(dict.fromkeys([*names, *own])), "application/json")

    def _own(self, route: str, request: Request) -> Response:
        """Returns TensorBoard's own answer."""
        # Of a compressed answer, the content is not JSON.
        environ = {k: v for k, v in request.environ.items() if k != "HTTP_ACCEPT_ENCODING"}
        return Response.from_app(self._own_apps[route], environ)

    def _answered(
        self, route: str, answer: Callable[[ServedRuns, str], tuple[Any, str]], request: Request
    ) -> Response:
        """Returns the answer about a run and a table, or why there is none."""
        run, name = (request.args.get(parameter, "") for parameter in ("run", "name"))
        record = self._recorded_runs().get(run)
        if record is None or not _shows(record):
            return self._own(route, request)
        try:
            content, kind = answer(record, name)
        except KeyError:
            return _response(request, "there is no such run or table", "text/plain", 404)
        except (RecSummaryError, ValueError, OSError, MemoryError) as error:
            return _response(request, reason(error), "text/plain", 400)
        return _response(request, content, kind)


def _response(request: Request, content: Any, kind: str, code: int = 200) -> Response:
    response: Response = Respond(request, content, kind, code)
    return response


def _shows(runs: ServedRuns) -> bool:
    """Whether a run seems to have a table; its checkpoint is not read."""
    try:
        return newest_checkpoint(runs.run) is not None or bool(_shapes(runs)[1])
    except RecSummaryError:  # of a URL; the page says why
        return True


def _tables(runs: ServedRuns) -> contextlib.AbstractContextManager[Tables]:
    def last_tensors() -> dict[str, Any]:
        served = [run.last_values(_KIND) for run in list(runs.served.values())]
        return {tag: value.value.tensor for values in served for tag, value in values.items()}

    return tables_of(runs.run, last_tensors)


def _shapes(runs: ServedRuns) -> tuple[str, dict[str, tuple[int, ...]]]:
    """Returns the checkpoint, and the shapes of the tables that the Projector can draw.

    It needs two points, and two dimensions.
    """
    with _tables(runs) as tables:
        matrices = {name: shape for name, shape in tables.shapes.items() if min(shape) > 1}
        return os.path.basename(tables.checkpoint or "none"), matrices


def _config_of(runs: ServedRuns, _: str) -> tuple[Any, str]:
    """Returns the tables of a run, embedding tables first."""
    checkpoint, shapes = _shapes(runs)
    names = sorted(shapes, key=lambda name: not is_table(name, shapes[name]))
    embeddings = [
        {"tensorName": name, "tensorShape": shapes[name], "metadataPath": "numbers of the rows"}
        for name in names
    ]
    return {"modelCheckpointPath": checkpoint, "embeddings": embeddings}, "application/json"


def _elements_of(runs: ServedRuns, name: str) -> tuple[Any, str]:
    return _table(runs, name).values.tobytes(), "application/octet-stream"


def _labels_of(runs: ServedRuns, name: str) -> tuple[Any, str]:
    return "".join(f"{row}\n" for row in _table(runs, name).rows.tolist()), "text/plain"


def _table(runs: ServedRuns, name: str) -> TableRows:
    """Returns a table of a run.

    Raises:
        KeyError: There is no such table.
        SourceError, ValueError: It cannot be read.
    """
    with _tables(runs) as tables:
        table = tables.read(name) if name in tables.shapes else None
    if table is None:
        raise KeyError(name)
    return table


_ANSWERS: Final = {
    projector_plugin.CONFIG_ROUTE: _config_of,
    projector_plugin.TENSOR_ROUTE: _elements_of,
    projector_plugin.METADATA_ROUTE: _labels_of,
}
"""What the page asks about a run and a table, by route."""
