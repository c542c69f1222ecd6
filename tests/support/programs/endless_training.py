"""A training without an end, to be started by python or msrun.

endless_training.py FOLDER [STALL_AFTER]

It ends when it is asked to; then it prints `ended`. After STALL_AFTER batches no more come.
"""

from __future__ import annotations

import os
import sys
import time

import mindspore
from mindspore.communication import get_rank, init

from rec_summary import SummaryCollector
from tests.support.nets import batch_of_clicks, click_model, stream


def main(folder: str, stall_after: int) -> None:
    """Trains online until it is asked to stop."""
    mindspore.set_context(mode=mindspore.GRAPH_MODE, device_target="CPU")
    rank = 0
    if "MS_ROLE" in os.environ:
        init()
        rank = get_rank()

    def rows():
        number = 0
        while True:
            time.sleep(0.005 if number < stall_after else 3600)
            yield batch_of_clicks(rank * 1000 + number % 100)
            number += 1

    collector = SummaryCollector(folder, collect_freq=10, flush_secs=0.2)
    click_model().online_train(stream(rows), callbacks=[collector])
    print("ended", collector.troubles, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if sys.argv[2:] else 1 << 60)
