"""Telemetry of recommender training on MindSpore.

    from rec_summary import RecModel, SummaryCollector

    RecModel(network, optimizer=optimizer).online_train(
        stream, callbacks=[SummaryCollector("records")]
    )

Then `rec-summary view records` shows them in TensorBoard.

Public names are loaded when they are first used: importing this package loads neither
MindSpore nor TensorBoard.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rec_summary.landscape.summary_landscape import SummaryLandscape
    from rec_summary.metrics.slices.gate import Gate
    from rec_summary.records.incidents import load_incident
    from rec_summary.records.writing.retention import Retention
    from rec_summary.records.writing.run_writer import Durability
    from rec_summary.series.options import ExportOptions
    from rec_summary.tables.formats import export_tables
    from rec_summary.tables.frames import load
    from rec_summary.tensorboard.event_files.export import export_tensorboard, follow_tensorboard
    from rec_summary.training.collector.collector import SummaryCollector
    from rec_summary.training.incidents import Incident
    from rec_summary.training.online.rec_model import RecModel
    from rec_summary.training.online.train_step import TrainStep
    from rec_summary.training.probes.gradient_metrics import GradientMetrics
    from rec_summary.training.probes.gradient_probe import GradientProbe
    from rec_summary.training.probes.probe import probe
    from rec_summary.training.recommender.columns import Feature
    from rec_summary.training.recommender.config import Advanced, RecommenderMetrics
    from rec_summary.training.recommender.importance import Importance
    from rec_summary.training.recommender.rows import EmbeddingTable
    from rec_summary.training.recommender.slices import Slice
    from rec_summary.training.recommender.task import Task
    from rec_summary.training.summary_record.summary_record import SummaryRecord

__all__ = [
    "Advanced",
    "Durability",
    "EmbeddingTable",
    "ExportOptions",
    "Feature",
    "Gate",
    "GradientMetrics",
    "GradientProbe",
    "Importance",
    "Incident",
    "RecModel",
    "RecommenderMetrics",
    "Retention",
    "Slice",
    "SummaryCollector",
    "SummaryLandscape",
    "SummaryRecord",
    "Task",
    "TrainStep",
    "__version__",
    "export_tables",
    "export_tensorboard",
    "follow_tensorboard",
    "load",
    "load_incident",
    "probe",
]

_HOME: Final = {
    "Durability": "rec_summary.records.writing.run_writer",
    "EmbeddingTable": "rec_summary.training.recommender.rows",
    "ExportOptions": "rec_summary.series.options",
    "Feature": "rec_summary.training.recommender.columns",
    "Gate": "rec_summary.metrics.slices.gate",
    "GradientMetrics": "rec_summary.training.probes.gradient_metrics",
    "GradientProbe": "rec_summary.training.probes.gradient_probe",
    "Importance": "rec_summary.training.recommender.importance",
    "Incident": "rec_summary.training.incidents",
    "RecModel": "rec_summary.training.online.rec_model",
    "Advanced": "rec_summary.training.recommender.config",
    "RecommenderMetrics": "rec_summary.training.recommender.config",
    "Retention": "rec_summary.records.writing.retention",
    "Slice": "rec_summary.training.recommender.slices",
    "SummaryCollector": "rec_summary.training.collector.collector",
    "SummaryLandscape": "rec_summary.landscape.summary_landscape",
    "SummaryRecord": "rec_summary.training.summary_record.summary_record",
    "Task": "rec_summary.training.recommender.task",
    "TrainStep": "rec_summary.training.online.train_step",
    "export_tables": "rec_summary.tables.formats",
    "export_tensorboard": "rec_summary.tensorboard.event_files.export",
    "follow_tensorboard": "rec_summary.tensorboard.event_files.export",
    "load": "rec_summary.tables.frames",
    "load_incident": "rec_summary.records.incidents",
    "probe": "rec_summary.training.probes.probe",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        if _HOME[name].startswith("rec_summary.training."):
            from rec_summary.old_mindspore import check

            check()
        try:
            value = getattr(importlib.import_module(_HOME[name]), name)
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] != "mindspore":
                raise
            raise ImportError(
                f"rec_summary.{name} needs MindSpore, which is not installed: "
                "pip install 'rec_summary[mindspore]'"
            ) from error
    elif name == "__version__":
        from importlib.metadata import version

        value = version("rec_summary")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
