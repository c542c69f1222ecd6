"""The examples that a training has seen at a step: what to compare other batch sizes over."""

from __future__ import annotations

import bisect

import numpy as np
import numpy.typing as npt

from rec_summary._pb.lineage_pb2 import TrainLineage
from rec_summary.arrays import Integers


class Totals:
    """The examples that one rank of a run has seen, by step, as far as the lineage states it.

    Between two recorded totals, and from step 0 on, examples are interpolated linearly, which is
    exact while all batches have the same size. Behind the last total, and in records without
    totals, such as those of MindSpore, each step has the batch size of the lineage.
    """

    def __init__(self) -> None:
        self._steps = [0]
        self._samples = [0]
        self._batch_size = 0

    @property
    def known(self) -> bool:
        """Whether a batch size or a total is recorded."""
        return self._batch_size > 0 or len(self._steps) > 1

    def take(self, train: TrainLineage) -> None:
        """Takes what a training lineage states; after a restart, the later totals count."""
        state = train.run_state
        self._batch_size = max(
            state.batch_size or train.hyper_parameters.batch_size or self._batch_size, 0
        )
        if state.step > 0 and state.samples > 0:
            index = bisect.bisect_left(self._steps, state.step)
            self._steps[index:] = [state.step]
            self._samples[index:] = [state.samples]

    def at(self, steps: npt.ArrayLike) -> Integers:
        """Returns the examples that were seen when these steps had ended, of the same shape."""
        wanted = np.asarray(steps, np.int64)
        last, total = self._steps[-1], self._samples[-1]
        per_step = self._batch_size or total / max(last, 1)
        samples = np.interp(wanted, self._steps, self._samples)
        samples += np.maximum(wanted - last, 0) * per_step
        return np.rint(samples).astype(np.int64)
