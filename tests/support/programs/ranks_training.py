"""A training of two processes, to be started by msrun.

msrun --worker_num=2 --local_worker_num=2 --join=True ranks_training.py FOLDER [STEPS]
"""

from __future__ import annotations

import sys

import mindspore
from mindspore import nn
from mindspore.communication import get_rank, init

from rec_summary import RecModel, SummaryCollector
from tests.support.nets import ClickNet, Journal, batch_of_clicks, stream


def main(folder: str, steps: int) -> None:
    """Trains online, each rank on a stream of its own."""
    mindspore.set_context(mode=mindspore.GRAPH_MODE, device_target="CPU")
    init()
    rank = get_rank()

    def rows():
        number = rank * 1000
        while True:
            yield batch_of_clicks(number)
            number += 1

    network = ClickNet()
    optimizer = nn.SGD(network.trainable_params(), learning_rate=0.1)
    model = RecModel(network, nn.BCEWithLogitsLoss(), optimizer)
    landscape = {"intervals": [[1, 2, 3]], "unit": "step"}
    collector = SummaryCollector(
        folder,
        collect_freq=1,
        collect_specified_data={"collect_landscape": landscape},
        custom_lineage_data={"team": "ads"},
    )
    model.online_train(stream(rows), callbacks=[collector, Journal(stop_after=steps)])


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
