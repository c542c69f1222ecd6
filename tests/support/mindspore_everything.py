"""Trainings that record everything there is to record; run as a program of its own.

    python mindspore_everything.py rec_summary DIRECTORY
    python mindspore_everything.py mindspore DIRECTORY

The first argument says whose collector is used. MindSpore's forks and keeps processes, so this
must never run inside the tests' process. `DIRECTORY` gets two runs:

* `everything`: two epochs with a landscape's checkpoints, an evaluation, the landscapes;
* `restarted`: two epochs; then, in the same directory, the second epoch again with another
  optimizer. MindSpore counts the steps of that from 1, our collector from where epochs do.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import SummaryLandscape, Tensor, nn, ops
from mindspore.dataset import GeneratorDataset
from mindspore.train import Loss, Model
from mindspore.train.metrics import MAE

from tests.support.waiting import next_second

STEPS_PER_EPOCH = 5
EPOCHS = 2
BATCH = 4
INTERVALS = [[2, 4, 6, 8, 10]]
GRID = 5


class PictureNet(nn.Cell):
    """Rates pictures (batch, 3, 8, 8) with numbers (batch, 1), and puts out what it sees."""

    def __init__(self, *, talks: bool = True) -> None:
        super().__init__()
        self.features = nn.Conv2d(3, 2, 3, has_bias=True)
        self.head = nn.Dense(2 * 8 * 8, 1)
        self.talks = talks
        self.scalar = ops.ScalarSummary()
        self.image = ops.ImageSummary()
        self.tensor = ops.TensorSummary()
        self.histogram = ops.HistogramSummary()

    def construct(self, pictures: Tensor) -> Tensor:
        features = ops.relu(self.features(pictures))
        rating = self.head(features.reshape((-1, 2 * 8 * 8)))
        if self.talks:
            # In a training graph, what a reshape feeds directly is dropped by MindSpore's compiler.
            self.scalar("rating/mean", rating.mean() * 1.0)
            self.image("pictures", pictures * 1.0)
            self.tensor("rating/first", rating[0] * 1.0)
            self.tensor("rating/column", rating * 1.0)
            self.tensor("features/all", features * 1.0)
            self.tensor("features/odd", ops.log(features[0, 0] - 0.01))
            self.histogram("features/spread", features * 1.0)
            self.histogram("features/odd_spread", ops.log(features - 0.01))
        return rating


def rows(batches: int) -> GeneratorDataset:
    """Returns `batches` batches of pictures and their ratings, the same each time."""
    random = np.random.default_rng(0)
    pictures = random.random((batches * BATCH, 3, 8, 8), dtype=np.float32)
    ratings = pictures.mean(axis=(1, 2, 3)).reshape(-1, 1)
    pairs = list(zip(pictures, ratings, strict=True))
    return GeneratorDataset(pairs, ["picture", "rating"], shuffle=False).batch(BATCH)


def train(collector: Any, *, seed: int, anew: bool = False) -> Model:
    """Trains a new network, only in the second epoch if `anew`, and returns its model."""
    ms.set_seed(seed)
    network = PictureNet()
    if anew:
        optimizer = nn.Adam(network.trainable_params(), learning_rate=0.001)
    else:
        optimizer = nn.Momentum(network.trainable_params(), learning_rate=0.05, momentum=0.9)
    model = Model(network, nn.MSELoss(), optimizer, metrics={"mae": MAE()})
    model.train(
        EPOCHS,
        rows(STEPS_PER_EPOCH),
        callbacks=[collector],
        dataset_sink_mode=False,
        initial_epoch=1 if anew else 0,
    )
    return model


def compute_landscapes(directory: str) -> None:
    """Adds the landscapes of the training path and of the result, by MindSpore."""

    def parts() -> tuple[Model, nn.Cell, GeneratorDataset, dict[str, Loss]]:
        # A network that puts out what it sees would do so in the landscapes' record as well.
        network = PictureNet(talks=False)
        metrics = {"Loss": Loss()}
        model = Model(network, nn.MSELoss(), metrics=metrics)
        return model, network, rows(STEPS_PER_EPOCH), metrics

    SummaryLandscape(directory).gen_landscapes_with_multi_process(parts, device_ids=[0])


def main(whose: str, directory: str) -> None:
    """Records both runs below `directory`."""
    more: dict[str, Any] = {}
    if whose == "mindspore":
        from mindspore.train import SummaryCollector
    else:
        from rec_summary import Advanced, RecommenderMetrics, SummaryCollector

        more["recommender"] = RecommenderMetrics(
            predictions="rating/column",
            labels=lambda inputs, _: inputs[1].asnumpy() > 0.5,
            ids={"tenths": lambda inputs, _: (10 * inputs[1].asnumpy()).astype(np.int32)},
            report_steps=2,
            detail=True,
            advanced=Advanced(detail_every=2),
        )

    ms.set_context(mode=ms.GRAPH_MODE)
    landscape = {
        "landscape_size": GRID,
        "unit": "step",
        "create_landscape": {"train": True, "result": True},
        "num_samples": BATCH,
        "intervals": INTERVALS,
    }
    everything = str(Path(directory) / "everything")
    collector = SummaryCollector(
        everything,
        collect_freq=1,
        collect_tensor_freq=1,
        collect_specified_data={"histogram_regular": ".*", "collect_landscape": landscape},
        custom_lineage_data={"team": "ads", "trial": 7, "dropout": 0.25},
        **more,
    )
    model = train(collector, seed=1)
    next_second()
    quiet = {"collect_landscape": None}
    evaluator = SummaryCollector(everything, collect_specified_data=quiet)
    model.eval(rows(3), callbacks=[evaluator], dataset_sink_mode=False)
    next_second()
    compute_landscapes(everything)

    restarted = str(Path(directory) / "restarted")
    train(SummaryCollector(restarted, 2, collect_specified_data=quiet), seed=2)
    next_second()
    train(SummaryCollector(restarted, 3, collect_specified_data=quiet), seed=3, anew=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
