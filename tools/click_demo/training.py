"""The training itself: the stream, the model, and rec_summary's collector beside it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mindspore
import numpy as np
from mindspore.dataset import GeneratorDataset
from mindspore.train import Callback

from rec_summary import (
    GradientMetrics,
    Importance,
    RecModel,
    RecommenderMetrics,
    Retention,
    Slice,
    SummaryCollector,
    SummaryLandscape,
    Task,
)
from rec_summary.training.landscape.policy import KeepLogSpaced, LogSpaced, SavePolicy

from . import model
from .features import AGE_GROUPS, GENRE_SLOTS, Batch, TaskBatch
from .serving import TaskEncoder
from .sources import Source
from .stream import ClickStream, plain

COLLECT_FREQ = 10  # steps between two records
_MOST_BYTES = 100_000_000  # of records of an endless training
_GRID, _SAMPLES = 21, 1024  # of the loss landscape: some ten seconds
_WINDOW = 200  # steps; small batches are noisy
_HISTOGRAMS = r".*(embedding|mlp.*weight)"  # matched against the start of the names
_GROUPS = {"tables": r".*(embedding|wide_)", "mlp": r".*mlp"}  # of the norms of gradients


class Meter(Callback):
    """Counts steps, shows the loss, and stops the training after some steps, if there is a limit.

    Attributes:
        steps: The number of steps so far.
        loss: The mean loss of at most the last 200 steps, in effect: a plain mean at first, then
            an exponential moving average. None before the first step.
    """

    def __init__(self, most_steps: int | None, show: Callable[[str, int, int], None]) -> None:
        super().__init__()
        self.steps = 0
        self.loss: float | None = None
        self._most_steps = most_steps
        self._show = show

    @property
    def is_endless(self) -> bool:
        """Whether there is no limit."""
        return self._most_steps is None

    @property
    def window(self) -> int:
        """The number of steps in `loss`."""
        return min(self.steps, _WINDOW)

    def count(self, loss: float) -> None:
        """Counts a step and shows the loss."""
        self.steps += 1
        previous = loss if self.loss is None else self.loss
        self.loss = previous + (loss - previous) / self.window
        self._show(f"loss {self.loss:.4f}", self.steps, self._most_steps or 0)

    def on_train_step_end(self, run_context: Any) -> None:
        """Counts the step, and stops after the last one."""
        self.count(float(run_context.original_args()["net_outputs"][0].asnumpy()))
        if self._most_steps is not None and self.steps >= self._most_steps:
            run_context.request_stop()


def train(
    source: Source,
    records: Path,
    meter: Meter,
    *,
    batch_size: int,
    seed: int,
    tasks: bool = False,
    broken_from: int | None = None,
    broken: str = "labels",
) -> None:
    """Trains online on `source` until `meter` stops, and records the training in `records`.

    Every batch is scored before the model is trained on it, so the loss on new rows is
    prequential. `meter` counts the steps, however the training ends. The batches from
    step `broken_from` on are broken, as `BREAKS` of `stream` says.

    Raises:
        KeyboardInterrupt, SystemExit: The training was stopped by Ctrl-C or SIGTERM; what
            was recorded until then is complete.
    """
    mindspore.set_seed(seed)
    mindspore.set_context(mode=mindspore.GRAPH_MODE)
    scorer = model.WideDeep(source.vocabulary, heads=2 if tasks else 1)
    network = model.TaskEvaluation(scorer) if tasks else model.ClickEvaluation(scorer)
    trainee = RecModel(network, optimizer=model.adam(scorer), keep_outputs=True)
    options = {"seed": seed, "batch_size": batch_size, "tasks": tasks}
    collector = make_collector(source, records, endless=meter.is_endless, **options)
    encoder = TaskEncoder if tasks else plain
    stream = ClickStream(source.chunks, source.vocabulary, batch_size, encoder, broken_from, broken)
    trainee.online_train(
        as_dataset(stream, tasks),
        callbacks=[collector, meter],
        dataset_sink_mode=False,
    )


def make_collector(
    source: Source,
    records: Path,
    *,
    seed: int,
    batch_size: int,
    tasks: bool = False,
    endless: bool = False,
) -> SummaryCollector:
    """Returns the demo's collector, with all that it shows switched on."""
    return SummaryCollector(
        str(records),
        collect_freq=COLLECT_FREQ,
        collect_specified_data={
            "histogram_regular": _HISTOGRAMS,
            "collect_landscape": {
                "policy": SavePolicy(LogSpaced(6), KeepLogSpaced(16)),
                "landscape_size": _GRID,
                "num_samples": _SAMPLES,
                "replay": "reservoir",
                "create_landscape": {"train": True, "result": False},
            },
        },
        custom_lineage_data={
            "data": source.name,
            "seed": seed,
            "stream_batch_size": batch_size,
            "wide_learning_rate": model.WIDE_LEARNING_RATE,
            "deep_learning_rate": model.DEEP_LEARNING_RATE,
        },
        recommender=task_metrics(source) if tasks else recommender_metrics(),
        gradients=GradientMetrics(every=COLLECT_FREQ, groups=_GROUPS) if tasks else None,
        retention=Retention(total_bytes=_MOST_BYTES) if endless else None,
    )


def recommender_metrics() -> RecommenderMetrics:
    """Returns the recommender's telemetry: where in a step everything is.

    `ClickEvaluation` returns loss, probability and label; the others are columns of `Batch`.
    """
    return RecommenderMetrics(
        predictions=1,
        labels=2,
        users="user",
        ids={
            "user_embedding": "user",
            "item_embedding": "item",
            "context_embedding": "context",
            "wide_cross": "crosses",
        },
        unknown_ids={"wide_cross": 0},
        features={"item": "item", "age_group": ("context", 0)},
        last=(20_000,),
        report_steps=100,  # the training is short
    )


def task_metrics(source: Source) -> RecommenderMetrics:
    """Returns the telemetry of two heads, with the metrics of each by genre, user and film."""
    names = source.vocabulary.genre_names
    return RecommenderMetrics(
        tasks={
            "click": Task(
                predictions=1,
                labels=2,
                users="user",
                lists="user",
                served="served",
                model_age="served_age",
            ),
            "loved": Task(predictions=3, labels=4, mask=2),  # of what was clicked
        },
        slices={
            "genre": Slice(_genres, names=dict(enumerate(names)), missing=-1),
            "user": Slice("user", new=20),
            "age_group": Slice(("context", 0), names=dict(enumerate(AGE_GROUPS))),
            "film": Slice("item", new=50, names={0: "cold", 1: "warm"}),
        },
        ids={"user_embedding": "user", "item_embedding": "item", "wide_cross": "crosses"},
        unknown_ids={"wide_cross": 0},
        hashed_ids=["wide_cross"],
        features={"item": "item", "age_group": ("context", 0)},
        importance=Importance(
            every=10,
            features={
                "user": ["user", *(("crosses", slot) for slot in range(GENRE_SLOTS))],
                "film": ["item", ("crosses", -2), ("crosses", -1)],
                "genres": "genres",
                "age_group": ("context", 0),
                "occupation": ("context", 2),
                "hour": ("context", 3),
            },
            budget=0.1,  # the training is short, and its batches are small
        ),
        last=(20_000,),
        report_steps=100,
    )


def _genres(inputs: Any, outputs: Any) -> Any:
    """Returns the genres of each film, (B, genres): their numbers, and -1 for others."""
    has_genre = inputs[Batch._fields.index("genres")].asnumpy() > 0
    return np.where(has_genre, np.arange(has_genre.shape[1]), -1)


def landscape(
    source: Source,
    records: Path,
    progress: Callable[[str, int, int], None],
    *,
    tasks: bool = False,
) -> None:
    """Computes the loss landscape of a recorded training, on the rows that it has frozen."""

    def parts() -> tuple[Any, ...]:
        scorer = model.WideDeep(source.vocabulary, heads=2 if tasks else 1)
        scorer.trainable_params()  # names its parameters, as the training did
        network = model.TaskLoss(scorer) if tasks else model.ClickLoss(scorer)
        return None, network, None, {}

    SummaryLandscape(records).gen_landscapes_with_multi_process(
        parts, engine="sequential", progress=progress
    )


def as_dataset(stream: ClickStream, tasks: bool = False) -> GeneratorDataset:
    """Makes an unbounded data set of whole batches. Never ask it for its size."""
    return GeneratorDataset(
        stream,
        column_names=list((TaskBatch if tasks else Batch)._fields),
        shuffle=False,  # the order of time is the point
        num_parallel_workers=1,
        python_multiprocessing=False,
    )
