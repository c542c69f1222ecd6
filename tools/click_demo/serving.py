"""The score that each impression was served with: not from a log, but of a model built daily."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .features import DAY_SECONDS, Impressions, TaskBatch, Vocabulary, encode

_PRIOR = 5.0  # impressions at the click rate of all, for a film or a person with few of their own


class TaskEncoder:
    """Encodes impressions in the order of time, with both labels and with the served score.

    The model that serves knows the click rates of films and of people until the last midnight.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        """Begins: nothing is known, so the first day has no served score."""
        self._vocabulary = vocabulary
        # Impressions without and with a click, by the id of the film, and of the person.
        self._seen = np.zeros((2, vocabulary.items)), np.zeros((2, vocabulary.users))
        self._known = self._seen
        self._day = -1

    def __call__(self, impressions: Impressions) -> TaskBatch:
        """Encodes impressions, row for row."""
        days, seconds = np.divmod(impressions.seconds, DAY_SECONDS)
        ends = [*(np.flatnonzero(np.diff(days)) + 1), len(days)]
        served = []
        for begin, end in zip([0, *ends], ends, strict=False):
            if days[begin] != self._day:
                self._day, self._known = days[begin], tuple(seen.copy() for seen in self._seen)
            ids = impressions.item[begin:end], impressions.user[begin:end]
            served.append(self._scores(ids))
            for seen, own in zip(self._seen, ids, strict=True):
                np.add.at(seen, (impressions.clicked[begin:end].astype(int), own), 1)
        return TaskBatch(
            *encode(impressions, self._vocabulary),
            loved=impressions.loved.astype(np.float32),
            served=np.concatenate(served).astype(np.float32),
            served_age=seconds.astype(np.float32),
        )

    def _scores(self, ids: tuple[npt.NDArray[np.int64], ...]) -> npt.NDArray[np.float64]:
        """Returns probabilities of a click; NaN as long as nothing is known."""
        with np.errstate(divide="ignore", invalid="ignore"):
            total = self._known[0].sum(axis=1)
            odds = np.full(len(ids[0]), -np.log(total[1] / total[0]))
            for known, own in zip(self._known, ids, strict=True):
                others, clicks = known[:, own] + _PRIOR * total[:, None] / total.sum()
                odds += np.log(clicks / others)
        return 1 / (1 + np.exp(-odds))
