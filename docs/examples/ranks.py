"""Data-parallel training of two ranks, to be started by msrun; each sees its own clicks.

    msrun --worker_num=2 --local_worker_num=2 --join=True docs/examples/ranks.py --steps 200

Both ranks give the same record directory: each writes files of its own there.
"""

from __future__ import annotations

import mindspore
from clicks import Clicks, arguments, stop_after
from mindspore import nn
from mindspore.communication import get_rank, init
from wide_deep import ClickLoss, WideDeep

from rec_summary import RecModel, SummaryCollector


def main() -> None:
    """Trains online; rank 0 writes the lineage."""
    options = arguments(__doc__, "records/ranks", 200)
    init()
    mindspore.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)
    mindspore.set_seed(1)  # the same weights everywhere
    clicks = Clicks(options.data)
    network = ClickLoss(WideDeep(clicks.vocabulary))
    model = RecModel(network, optimizer=nn.Adam(network.trainable_params(), 2e-3))
    collector = SummaryCollector(options.records, collect_freq=10)
    model.online_train(
        clicks.endless(skip=1000 * get_rank()),
        callbacks=[collector, stop_after(options.steps)],
        dataset_sink_mode=False,
    )
    print(f"rank {get_rank()} recorded: {options.records}")


if __name__ == "__main__":
    main()
