"""Trains online with a recommender's metrics, and kills itself after some steps.

python recommender_crash.py FOLDER STEPS FIRST
"""

from __future__ import annotations

import itertools
import os
import signal
import sys

from mindspore import nn
from mindspore.train import Callback

from rec_summary import Advanced, RecModel, RecommenderMetrics, SummaryCollector
from tests.support.nets import ClickNet, batch_of_clicks, stream


class Kill(Callback):
    """Waits until the records of the last step are written, then ends without a goodbye."""

    def __init__(self, steps: int, collector: SummaryCollector) -> None:
        super().__init__()
        self._steps, self._collector = steps, collector

    def on_train_step_end(self, run_context) -> None:
        if run_context.original_args().cur_step_num == self._steps:
            assert self._collector.flush()
            os.kill(os.getpid(), signal.SIGKILL)


def main(folder: str, steps: int, first: int) -> None:
    """Trains on batches from number `first` on; the scores follow from the batch alone."""
    network = ClickNet()
    optimizer = nn.SGD(network.trainable_params(), learning_rate=0.1)
    model = RecModel(network, nn.BCEWithLogitsLoss(), optimizer)
    options = RecommenderMetrics(
        predictions=lambda inputs, outputs: inputs[0].asnumpy()[:, 1] / 20,
        labels=lambda inputs, outputs: inputs[1],
        ids={"table": "fields"},
        report_steps=5,
        detail=True,
        advanced=Advanced(state_secs=0),
    )
    collector = SummaryCollector(folder, recommender=options)

    def batches():
        return (batch_of_clicks(number) for number in itertools.count(first))

    model.online_train(stream(batches), callbacks=[collector, Kill(steps, collector)])


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
