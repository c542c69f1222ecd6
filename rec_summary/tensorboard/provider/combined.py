"""Several sources of data as one: records beside event files."""

from __future__ import annotations

from typing import Any, Final

from tensorboard.backend.event_processing import data_ingester
from tensorboard.data import provider, server_ingester

from rec_summary.tensorboard import hparams_metrics
from rec_summary.tensorboard.provider.data_provider import KEY_PREFIX

_LOADERS: Final[list[Any]] = []  # a loader ends when nothing refers to it


class CombinedDataProvider(provider.DataProvider):  # type: ignore[misc]
    """Joins records with another provider's runs. Where both have a series, that of records counts.

    Attributes:
        other: The other provider; None until it is ready.
    """

    def __init__(self, records: Any, other: Any = None) -> None:
        """Joins two providers."""
        self._records = records
        self.other = other

    def experiment_metadata(self, ctx: Any = None, *, experiment_id: str) -> Any:
        """Returns where the records are."""
        return self._records.experiment_metadata(ctx, experiment_id=experiment_id)

    def list_plugins(self, ctx: Any = None, *, experiment_id: str) -> list[str]:
        """Returns the names of the plugins that have data."""
        found = set(self._records.list_plugins(ctx, experiment_id=experiment_id))
        if self.other is not None:
            found.update(self.other.list_plugins(ctx, experiment_id=experiment_id) or ())
        return sorted(found)

    def list_runs(self, ctx: Any = None, *, experiment_id: str) -> list[Any]:
        """Returns the runs."""
        found = list(self._records.list_runs(ctx, experiment_id=experiment_id))
        known = {run.run_id for run in found}
        if self.other is not None:
            others = self.other.list_runs(ctx, experiment_id=experiment_id)
            found.extend(run for run in others if run.run_id not in known)
        return found

    def list_scalars(self, ctx: Any = None, **request: Any) -> Any:
        """Returns the series of scalars of both."""
        return self._both("list_scalars", ctx, request)

    def read_scalars(self, ctx: Any = None, **request: Any) -> Any:
        """Returns the scalars of both."""
        return self._both("read_scalars", ctx, request)

    def read_last_scalars(self, ctx: Any = None, **request: Any) -> Any:
        """Returns the last scalars of both."""
        return self._both("read_last_scalars", ctx, request)

    def list_tensors(self, ctx: Any = None, **request: Any) -> Any:
        """Returns the series of tensors of both; those of HParams say which metrics matter."""
        found = self._both("list_tensors", ctx, request)
        wanted = request.get("run_tag_filter")
        is_all = wanted is None or (wanted.runs is None and wanted.tags is None)
        if is_all and request["plugin_name"] == hparams_metrics.PLUGIN:
            asked = {"experiment_id": request["experiment_id"], "plugin_name": "scalars"}
            scalars = self._records.list_scalars(ctx, **asked).values()
            recorded = {tag for tags in scalars for tag in tags}
            return hparams_metrics.with_experiment(found, self, recorded)
        return found

    def read_tensors(self, ctx: Any = None, **request: Any) -> Any:
        """Returns the tensors of both."""
        return self._both("read_tensors", ctx, request)

    def list_blob_sequences(self, ctx: Any = None, **request: Any) -> Any:
        """Returns the series of blobs of both."""
        return self._both("list_blob_sequences", ctx, request)

    def read_blob_sequences(self, ctx: Any = None, **request: Any) -> Any:
        """Returns the keys of blobs of both."""
        return self._both("read_blob_sequences", ctx, request)

    def read_blob(self, ctx: Any = None, *, blob_key: str) -> Any:
        """Returns a blob of the provider that made the key."""
        is_ours = self.other is None or blob_key.startswith(KEY_PREFIX)
        return (self._records if is_ours else self.other).read_blob(ctx, blob_key=blob_key)

    def _both(self, method: str, ctx: Any, request: Any) -> Any:
        found = {
            run: dict(tags) for run, tags in getattr(self._records, method)(ctx, **request).items()
        }
        if self.other is not None:
            others = getattr(self.other, method)(ctx, **request) or {}
            for run, tags in others.items():
                found[run] = {**tags, **found.get(run, {})}
        return found


def add_event_files(combined: CombinedDataProvider, flags: Any) -> None:
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
            combined.other = fast.data_provider
            return
    slow = data_ingester.LocalDataIngester(flags)
    slow.start()
    combined.other = slow.data_provider
