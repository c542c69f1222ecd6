"""Trains online until it is killed, and says which steps it has done.

python crash_training.py FOLDER
"""

from __future__ import annotations

import sys
import time

import psutil
from mindspore.train import Callback

from rec_summary import SummaryCollector
from tests.support.nets import click_model, stream


class Tell(Callback):
    """Prints each step, and how many children there are."""

    def on_train_step_end(self, run_context) -> None:
        step = run_context.original_args().cur_step_num
        print(step, len(psutil.Process().children(recursive=True)), flush=True)
        time.sleep(0.01)


if __name__ == "__main__":
    collector = SummaryCollector(sys.argv[1], collect_freq=1, flush_secs=0.5)
    click_model().online_train(stream(), callbacks=[collector, Tell()])
