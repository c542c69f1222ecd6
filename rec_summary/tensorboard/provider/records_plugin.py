"""What TensorBoard has no interface for: embedding tables of records, and the first screen.

TensorBoard's Projector reads files of the log directory by itself. So this plugin has the same page
again, and answers from checkpoints and recorded tensors what it asks. Nothing is written.
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
from tensorboard.compat.proto import summary_pb2
from tensorboard.plugins import base_plugin
from tensorboard.plugins.projector import projector_plugin
from werkzeug import Request, Response

from rec_summary.errors import RecSummaryError
from rec_summary.landscape.checkpoints import is_table
from rec_summary.series.text import reason
from rec_summary.tensorboard.embedding_tables import TableRows, Tables, newest_checkpoint, tables_of
from rec_summary.tensorboard.first_screen import page, pinned_tags
from rec_summary.tensorboard.provider.run_index import RunIndex
from rec_summary.tensorboard.provider.served_outputs import ServedRuns

FIRST_SCREEN: Final = "/first_screen"
"""A route that leads to the Time Series page with the loss and the AUC at its top."""

_ROOT: Final = "../../../"  # from /data/plugin/rec_summary/
_KIND: Final = "tensor"
_PATIENCE_SECS: Final = 0.2  # of a listing of pages, which waits for the search


class RecordsPlugin(base_plugin.TBPlugin):  # type: ignore[misc]
    """A second Projector, of records."""

    plugin_name = "rec_summary"

    def __init__(self, context: Any, index: RunIndex) -> None:
        """Answers from an index, which someone keeps up to date."""
        super().__init__(context)
        self._index = index
        self._pages = projector_plugin.ProjectorPlugin(context).get_plugin_apps()
        self._has_tables = False
        self._search: threading.Thread | None = None

    def get_plugin_apps(self) -> dict[str, Any]:
        """Returns the routes: the page's own files, and what it asks."""
        files = {route: app for route, app in self._pages.items() if "." in route}
        answers: dict[str, Callable[[Request], Response]] = {
            route: functools.partial(self._answered, answer) for route, answer in _ANSWERS.items()
        }
        answers[projector_plugin.RUNS_ROUTE] = self._runs
        answers[FIRST_SCREEN] = self._first_screen
        return files | {route: Request.application(answer) for route, answer in answers.items()}

    def is_active(self) -> bool:
        """Whether a run has a table; a thread looks for one, since that may take long."""
        if not self._has_tables and (self._search is None or not self._search.is_alive()):
            self._search = threading.Thread(target=self._find_tables, daemon=True)
            self._search.start()
            self._search.join(_PATIENCE_SECS)
        return self._has_tables

    def frontend_metadata(self) -> Any:
        """Returns what the page is called."""
        return base_plugin.FrontendMetadata(
            es_module_path="/index.js", disable_reload=True, tab_name="Projector"
        )

    def _find_tables(self) -> None:
        self._has_tables = any(_shows(record) for record in self._recorded_runs().values())

    def _recorded_runs(self) -> dict[str, ServedRuns]:
        """Returns the recorded runs by name."""
        return {loader.run.name: loader for loader in self._index.recorded()}

    def _runs(self, request: Request) -> Response:
        names = [name for name, record in self._recorded_runs().items() if _shows(record)]
        return _response(request, names, "application/json")

    def _answered(
        self, answer: Callable[[ServedRuns, str], tuple[Any, str]], request: Request
    ) -> Response:
        """Returns the answer about a place and a table, or why there is none."""
        run, name = (request.args.get(parameter, "") for parameter in ("run", "name"))
        try:
            content, kind = answer(self._recorded_runs()[run], name)
        except KeyError:
            return _response(request, "there is no such run or table", "text/plain", 404)
        except (RecSummaryError, ValueError, OSError, MemoryError) as error:
            return _response(request, reason(error), "text/plain", 400)
        return _response(request, content, kind)

    def _first_screen(self, request: Request) -> Response:
        tags: list[str] = []
        for run in self._index.served():
            with run.lock:
                scalars = run.series("scalars", summary_pb2.DATA_CLASS_SCALAR)
                tags += [tag for tag, _ in scalars]
        location = {"Location": page(_ROOT, pinned_tags(tags))}
        return Response(status=302, headers=location)


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
