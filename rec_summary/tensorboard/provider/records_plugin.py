"""The page Recommender in TensorBoard."""

from __future__ import annotations

from typing import Any

from tensorboard.compat.proto import summary_pb2
from tensorboard.plugins import base_plugin
from tensorboard.plugins.scalar import metadata as scalars

from rec_summary.tensorboard.first_screen import RECOMMENDER, has_recommender
from rec_summary.tensorboard.page.routes import MODULE, routes
from rec_summary.tensorboard.provider.records_projector import extend_projector
from rec_summary.tensorboard.provider.run_index import RunIndex


class RecordsPlugin(base_plugin.TBPlugin):  # type: ignore[misc]
    """A page about the recommenders that records are of; it extends the Projector as well."""

    plugin_name = RECOMMENDER

    def __init__(self, context: Any, index: RunIndex) -> None:
        """Answers from an index, which someone keeps up to date."""
        super().__init__(context)
        self._context = context
        self._index = index
        extend_projector(context, index)
        self._has_recommender = False

    def get_plugin_apps(self) -> dict[str, Any]:
        """Returns the routes: the module of the page, and what it asks."""
        # All plugins are loaded now; the Projector may come after this one.
        extend_projector(self._context, self._index)
        return routes(self._index)

    def is_active(self) -> bool:
        """Whether a run has, or had, metrics of a recommender."""
        if not self._has_recommender:
            self._has_recommender = any(
                has_recommender(self._tags(run))
                for recorded in self._index.recorded()
                for run in list(recorded.served.values())  # another thread adds to them
            )
        return self._has_recommender

    def frontend_metadata(self) -> Any:
        """Returns what the page is called."""
        return base_plugin.FrontendMetadata(
            es_module_path=MODULE, disable_reload=True, tab_name="Recommender"
        )

    def _tags(self, run: Any) -> list[str]:
        with run.lock:
            series = run.series(scalars.PLUGIN_NAME, summary_pb2.DATA_CLASS_SCALAR)
            return [tag for tag, _ in series]
