"""A life of a training: one that is killed, one that goes on behind a checkpoint, or an evaluation.

python life_cycle.py {model,online} {killed,resumed,evaluated} FOLDER

Prints what happened as JSON: the loss of each step and the metrics of each evaluation, by step.
"""

from __future__ import annotations

import json
import os
import signal
import sys

from mindspore.train import Callback

from rec_summary import SummaryCollector
from tests.support.nets import bounded, click_model, stream

BATCHES = 10  # in an epoch
KILLED, CHECKPOINT, LAST = 25, 20, 30  # steps


class Tell(Callback):
    """Tells what happened; at step `KILLED`, it ends the process by force."""

    def __init__(self, collector: SummaryCollector, killed: bool) -> None:
        super().__init__()
        self.losses: dict[int, float] = {}
        self.evaluations: dict[int, dict[str, float]] = {}
        self._collector, self._killed = collector, killed

    def on_train_step_end(self, run_context) -> None:
        parameters = run_context.original_args()
        # Steps of `Model.fit(initial_epoch=2)` begin at 1, epochs at 3.
        step = parameters.cur_step_num
        if sys.argv[1] == "model":
            step = (parameters.cur_epoch_num - 1) * BATCHES + (step - 1) % BATCHES + 1
        self.losses[step] = float(parameters.net_outputs.asnumpy())
        if self._killed and step == KILLED:
            assert self._collector.flush()
            self.tell()
            os.kill(os.getpid(), signal.SIGKILL)
        if step == LAST and sys.argv[1] == "online":
            run_context.request_stop()

    def on_train_epoch_end(self, run_context) -> None:
        if metrics := run_context.original_args().get("eval_results"):
            self.evaluations[max(self.losses)] = dict(metrics)

    def tell(self) -> None:
        print(json.dumps([self.losses, self.evaluations]), flush=True)


def main(kind: str, life: str, folder: str) -> None:
    collector = SummaryCollector(folder, collect_freq=1)
    model, tell = click_model(metrics={"mae"}), Tell(collector, life == "killed")
    callbacks = [collector, tell]
    if life == "evaluated":
        tell.evaluations[LAST] = model.eval(bounded(2), callbacks=collector)
    elif kind == "model":
        first = CHECKPOINT // BATCHES if life == "resumed" else 0
        data, validation = bounded(BATCHES), bounded(2)
        model.fit(3, data, validation, callbacks=callbacks, initial_epoch=first)
    else:
        initial = CHECKPOINT if life == "resumed" else 0
        model.online_train(stream(), callbacks=callbacks, initial_step=initial)
    tell.tell()


if __name__ == "__main__":
    main(*sys.argv[1:])
