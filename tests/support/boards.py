"""TensorBoard's HTTP application in this process, asked without a server."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from tensorboard import default, program
from tensorboard.backend import application
from tensorboard.backend.event_processing import data_ingester
from tensorboard.plugins.projector.projector_plugin import ProjectorPlugin
from werkzeug.test import Client

from rec_summary.tensorboard.provider.data_provider import KEY_PREFIX, RecordDataProvider
from rec_summary.tensorboard.provider.plugin import RecordsLoader
from rec_summary.tensorboard.provider.run_index import RunIndex

# So many that nothing is left out.
_SAMPLES = "--samples_per_plugin=scalars=9999,histograms=9999,images=9999,text=9999,mesh=9999"
_SESSIONS = {
    "experimentName": "",
    "allowedStatuses": ["STATUS_UNKNOWN", "STATUS_SUCCESS", "STATUS_FAILURE", "STATUS_RUNNING"],
    "colParams": [],
    "startIndex": 0,
    "sliceSize": 1000,
}


def blob_key(*parts: object) -> str:
    """Returns a key as the provider makes them, of anything."""
    data = base64.urlsafe_b64encode(json.dumps(parts).encode()).decode().rstrip("=")
    return KEY_PREFIX + data


class Pages:
    """The pages of a TensorBoard with some data provider, and with more plugins."""

    def __init__(self, provider: Any, logdir: Path, *loaders: Any) -> None:
        board = _configured(logdir)
        plugins = [*board.plugin_loaders, *loaders]
        app = application.TensorBoardWSGIApp(
            board.flags, plugins, provider, board.assets_zip_provider, None
        )
        self.provider = provider
        self._client = Client(app)

    def respond(self, path: str, **query: object) -> Any:
        """Returns the response to `/data/<path>`."""
        return self._client.get(f"/data/{path}", query_string=query or None)

    def fetch(self, path: str, **query: object) -> bytes:
        """Returns the bytes that are answered to `/data/<path>`."""
        return bytes(self._client.get(f"/data/{path}", query_string=query or None).get_data())

    def get(self, path: str, **query: object) -> Any:
        """Returns the JSON answer to `/data/<path>`; None if it is not there."""
        response = self._client.get(f"/data/{path}", query_string=query or None)
        if response.status_code in (400, 404):
            return None
        assert response.status_code == 200, response.status
        return json.loads(response.get_data())

    def sessions(self) -> list[dict[str, Any]]:
        """Returns the session groups of the HParams dashboard."""
        response = self._client.post("/data/plugin/hparams/session_groups", json=_SESSIONS)
        return list(json.loads(response.get_data())["sessionGroups"])

    def experiment(self) -> dict[str, Any]:
        """Returns the hyper-parameters and the metrics of the HParams dashboard."""
        path = "/data/plugin/hparams/experiment"
        response = self._client.post(path, json={"experimentName": "", "includeMetrics": True})
        return dict(json.loads(response.get_data()))

    def steps(self, run: str, tag: str) -> list[int]:
        """Returns the steps of a series of scalars; none if there is no such series."""
        answer = self.get("plugin/scalars/scalars", run=run, tag=tag)
        return [] if answer is None else [step for _, step, _ in answer]


def record_pages(source: Path, **options: Any) -> tuple[RunIndex, Pages]:
    """Returns an index of records that was polled once, and the pages that show it.

    Args:
        source: A tree of records.
        options: Options of `RunIndex`.
    """
    index = RunIndex(str(source), **options)
    index.poll()
    loader = RecordsLoader()
    loader.index = index
    return index, Pages(RecordDataProvider(index), source, loader)


def event_file_pages(logdir: Path) -> Pages:
    """Returns the pages of TensorBoard's own loader, with everything loaded."""
    board = _configured(logdir, "--reload_interval", "0", "--reload_task", "blocking")
    loader = data_ingester.LocalDataIngester(board.flags)
    loader.start()
    return Pages(loader.data_provider, logdir)


def _configured(logdir: Path, *arguments: str) -> Any:
    # The others that are installed would depend on the machine.
    board = program.TensorBoard([*default.get_static_plugins(), ProjectorPlugin])
    board.configure(("tensorboard", "--logdir", str(logdir), _SAMPLES, *arguments))
    return board
