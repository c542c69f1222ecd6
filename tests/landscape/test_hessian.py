"""Eigenvalues of a Hessian beside those of NumPy, with a table much larger than the rest."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from rec_summary.landscape.hessian import hessian_plane

ROWS, WIDTH, EXAMPLES = 2000, 4, 256
NAMES = ["item.embedding_table", "head.weight"]


class Logistic:
    """A logistic regression on the rows of a table and on dense features, in float32."""

    def __init__(self) -> None:
        random = np.random.default_rng(0)
        self.ids = random.integers(0, 20, EXAMPLES)
        self.dense = random.normal(0, 1.5, (EXAMPLES, WIDTH))
        self.labels = (random.random(EXAMPLES) < 0.4).astype(float)
        self.values = {}

    def set(self, name, value) -> None:
        self.values[name] = np.asarray(value, np.float32)

    def _predicted(self):
        table, head = (self.values[name].astype(np.float64) for name in NAMES)
        logits = self.dense @ head + table[self.ids, 0]
        return 1 / (1 + np.exp(-logits))

    def loss(self) -> float:
        p = self._predicted()
        return -np.mean(self.labels * np.log(p) + (1 - self.labels) * np.log(1 - p))

    def gradient(self, names):
        errors = (self._predicted() - self.labels) / EXAMPLES
        table = np.zeros((ROWS, WIDTH))
        np.add.at(table[:, 0], self.ids, errors)
        return dict(zip(NAMES, (np.float32(table), np.float32(errors @ self.dense)), strict=True))

    def eigenvalues(self, free_rows):
        p = self._predicted()
        rows = np.zeros((EXAMPLES, 20))
        rows[np.arange(EXAMPLES), self.ids] = 1
        jacobian = np.hstack([rows[:, free_rows], self.dense])
        hessian = jacobian.T @ (jacobian * (p * (1 - p))[:, None]) / EXAMPLES
        return np.sort(np.linalg.eigvalsh(hessian))[::-1]


def trajectory_of(model, changed):
    """Two checkpoints that differ in the rows `changed` of the table."""
    random = np.random.default_rng(1)
    table = np.zeros((ROWS, WIDTH), np.float32)
    table[:, 1:] = random.normal(0, 30, (ROWS, WIDTH - 1))  # large, and of no use to the loss
    last = {NAMES[0]: table, NAMES[1]: random.normal(0, 0.5, WIDTH).astype(np.float32)}
    first = {name: value.copy() for name, value in last.items()}
    first[NAMES[0]][changed] += 1
    points = [SimpleNamespace(names=NAMES, array=each.__getitem__) for each in (first, last)]
    for name, value in last.items():
        model.set(name, value)
    return SimpleNamespace(names=NAMES, checkpoints=points, last=points[-1], numbers=(1, 2))


@pytest.mark.parametrize("touched_only", [False, True])
def test_the_norm_of_tables_does_not_matter(touched_only) -> None:
    model, changed = Logistic(), np.arange(5)
    trajectory = trajectory_of(model, changed)
    exact = model.eigenvalues(changed if touched_only else np.arange(20))
    plane = hessian_plane(trajectory, NAMES, 3, 1, model, touched_only=touched_only)
    np.testing.assert_allclose(plane.eigenvalues, exact[:2], rtol=1e-3)
    if touched_only:
        for vector in (plane.first, plane.second):
            assert not vector[NAMES[0]][5:].any()
