"""The model that is trained online: embeddings of each column, one hidden layer, two heads."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from .world import AGES, CATEGORIES, CHANNELS, COUNTRIES, DEVICES, ITEMS, LANGUAGES, USERS, Batch

Array = npt.NDArray[Any]

_PRICES: Final = np.linspace(-2, 2, 11)
_SIZES: Final = {
    "user": USERS,
    "item": ITEMS,
    "country": len(COUNTRIES),
    "language": len(LANGUAGES),
    "device": len(DEVICES),
    "channel": len(CHANNELS),
    "age": len(AGES) + 2,
    "category": CATEGORIES + 1,
    "price": len(_PRICES) + 2,
}
_HEADS, _WIDTH, _HIDDEN = 2, 6, 16
_MEMORY: Final = 0.99  # of the squares of gradients


class TwoHeads:
    """Rates of clicks and of conversions: weights of values, and a network above their rows."""

    def __init__(self, rate: float = 0.1) -> None:
        """Draws the weights, the same each time."""
        random = np.random.default_rng(1)
        ends = np.cumsum([*_SIZES.values()])
        self._begins = dict(zip(_SIZES, (0, *ends[:-1]), strict=True))
        # The first columns are the weights of a value in each head, the others its row.
        self.rows = random.normal(0, 0.1, (ends[-1], _HEADS + _WIDTH))
        self.rows[:, :_HEADS] = 0
        inputs = len(_SIZES) * _WIDTH
        self.hidden = random.normal(0, inputs**-0.5, (inputs, _HIDDEN))
        self.out = random.normal(0, _HIDDEN**-0.5, (_HIDDEN, _HEADS))
        self.biases = np.full(_HEADS, -1.0)
        self.rate = rate
        for name, weights in vars(self).items():
            if isinstance(weights, np.ndarray):
                setattr(self, name, weights.astype(np.float32))
        self._squares = [np.full_like(weights, 0.1) for weights in self._weights]
        self.frozen: tuple[str, ...] = ()  # tables whose gradients are dropped

    @property
    def _weights(self) -> list[Array]:
        return [self.rows, self.hidden, self.out, self.biases]

    def table(self, name: str, rows: Array) -> Array:
        """Returns rows of a table."""
        return np.asarray(self.rows[self._begins[name] + rows])

    def train(self, batch: Batch, labels: Array, weights: Array) -> tuple[Array, float]:
        """Does a step.

        Args:
            batch: The columns.
            labels: The labels, [B, 2].
            weights: Which of them are known, [B, 2].

        Returns:
            The predicted rates, [B, 2], and the loss, both of before the step.
        """
        ids = self._ids(batch)
        rows = np.take(self.rows, ids, axis=0)  # [B, columns, heads + width]
        inputs = rows[:, :, _HEADS:].reshape(len(ids), -1)
        hidden = np.maximum(inputs @ self.hidden, 0)
        odds = rows[:, :, :_HEADS].sum(1) + hidden @ self.out + self.biases
        rates = 1 / (1 + np.exp(-odds))
        error = (rates - labels) * weights
        back = (error @ self.out.T) * (hidden > 0)
        gradients = np.empty_like(rows)
        gradients[:, :, :_HEADS] = error[:, None]
        gradients[:, :, _HEADS:] = (back @ self.hidden.T).reshape(len(ids), -1, _WIDTH)
        of_rows = np.empty_like(self.rows)
        for i in range(_HEADS + _WIDTH):
            of_rows[:, i] = np.bincount(ids.ravel(), gradients[:, :, i].ravel(), len(of_rows))
        self._update([of_rows, inputs.T @ back, hidden.T @ error, error.sum(0)])
        losses = (np.logaddexp(0, odds) - labels * odds) * weights
        return rates, float(losses.sum() / len(ids))

    def _ids(self, batch: Batch) -> Array:
        age = np.searchsorted(AGES, batch["age"], side="right")
        price = np.searchsorted(_PRICES, batch["price"], side="right")
        columns = dict(batch)
        columns["age"] = np.where(np.isnan(batch["age"]), len(AGES) + 1, age)
        columns["price"] = np.where(np.isnan(batch["price"]), len(_PRICES) + 1, price)
        return np.stack([columns[name] + begin for name, begin in self._begins.items()], 1)

    def _update(self, gradients: list[Array]) -> None:
        for name in self.frozen:
            begin = self._begins[name]
            gradients[0][begin : begin + _SIZES[name]] = 0
        for weights, squares, gradient in zip(self._weights, self._squares, gradients, strict=True):
            rows = np.flatnonzero(gradient[:, 0]) if weights is self.rows else slice(None)
            gradient = gradient[rows]
            squares[rows] = _MEMORY * squares[rows] + gradient**2
            weights[rows] -= self.rate * gradient / np.sqrt(squares[rows])
