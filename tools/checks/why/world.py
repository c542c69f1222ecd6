"""The traffic: users of countries see items, click and buy. Its tastes drift; the rest stays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Batch = dict[str, Array]
"""Columns by name, each [B]."""

COUNTRIES: Final = {
    "US": (0.200, "en"), "IN": (0.120, "en"), "BR": (0.090, "pt"), "DE": (0.080, "de"),
    "GB": (0.070, "en"), "FR": (0.065, "fr"), "ES": (0.060, "es"), "MX": (0.055, "es"),
    "IT": (0.040, "it"), "CA": (0.035, "en"), "JP": (0.032, "ja"), "AR": (0.025, "es"),
    "PL": (0.022, "pl"), "NL": (0.020, "nl"), "TR": (0.018, "tr"), "PT": (0.016, "pt"),
    "SE": (0.015, "sv"), "AT": (0.015, "de"), "CH": (0.010, "de"), "CO": (0.007, "es"),
    "BE": (0.005, "fr"), "KR": (0.000, "ko"),
}  # fmt: skip
"""The share of the traffic, and the language that most people speak."""
COMMON: Final = ("DE", "GB", "FR", "ES", "MX")
RARE: Final = ("IT", "CA", "JP", "AR", "PL", "NL", "TR", "PT", "SE", "AT")
NEW: Final = "KR"  # without traffic at first
LANGUAGES: Final = sorted({language for _, language in COUNTRIES.values()})
DEVICES: Final = ("phone", "desktop", "tablet", "tv", "watch")
CHANNELS: Final = (
    "feed", "search", "push", "mail", "ads", "home", "related", "cart", "share", "api",
)  # fmt: skip
AGES: Final = (18, 25, 35, 45, 55)
USERS, ITEMS, CATEGORIES = 6000, 2000, 12
REPORT: Final = 20_000  # examples between two reports
BATCH: Final = 2500

_DRIFT: Final = 0.01  # the part of a taste that each batch replaces
_NATIVE: Final = 0.85  # of a country's people speak its language
_OFFSETS: Final = {"click": -1.0, "conversion": -1.0}  # log-odds; of a conversion, after a click
_WEIGHTS: Final = {"user": 0.6, "item": 0.8, "country": 0.3, "device": 0.5, "age": 0.4}
_PRICE: Final = {"click": -0.5, "conversion": -0.6}


class World:
    """People, items and tastes of one seed."""

    def __init__(self, seed: int, rank: int = 0) -> None:
        """Makes the world of a seed; ranks have the same one, and each its own examples."""
        random = np.random.default_rng(seed)
        shares = np.array([share for share, _ in COUNTRIES.values()])
        self.shares: dict[str, Array] = {
            "country": shares / shares.sum(),
            "device": np.array([0.55, 0.28, 0.10, 0.05, 0.02]),
            "channel": _normed(np.arange(1.0, len(CHANNELS) + 1) ** -0.8),
        }
        people = np.where(shares > 0, shares, 0.05)
        self._ends = np.round(people.cumsum() / people.sum() * USERS).astype(int)
        self._begins = np.concatenate(([0], self._ends[:-1]))
        country = np.repeat(np.arange(len(shares)), self._ends - self._begins)
        native = np.array([LANGUAGES.index(language) for _, language in COUNTRIES.values()])
        anyone = random.choice(len(LANGUAGES), USERS)
        english = np.where(random.random(USERS) < 0.6, LANGUAGES.index("en"), anyone)
        self._language = np.where(random.random(USERS) < _NATIVE, native[country], english)
        self._age = np.round(random.gamma(6, 6, USERS) + 13)
        self._tells_age = random.random(USERS) > 0.1
        self._category = random.integers(1, CATEGORIES + 1, ITEMS)
        self._price = random.normal(size=ITEMS)
        sizes = {
            "user": (USERS,),
            "item": (ITEMS,),
            "country": (len(shares),),
            "device": (len(DEVICES), CATEGORIES + 1),
            "age": (len(AGES) + 1, len(CHANNELS)),
        }
        self._tastes = {
            label: {name: random.normal(size=size) for name, size in sizes.items()}
            for label in _OFFSETS
        }
        self.random = np.random.default_rng((seed, rank))

    def batch(self, size: int = BATCH) -> Batch:
        """Returns the next examples, with labels that are known at once; tastes move a little."""
        random = self.random
        country = self._drawn("country", size)
        begin, end = self._begins[country], self._ends[country]
        user = begin + ((end - begin) * random.random(size) ** 2).astype(int)
        item = (ITEMS * random.random(size) ** 2).astype(int)
        batch = {
            "user": user,
            "item": item,
            "country": country,
            "language": self._language[user],
            "device": self._drawn("device", size),
            "channel": self._drawn("channel", size),
            "age": np.where(self._tells_age[user], self._age[user], np.nan),
            "category": self._category[item],
            "price": self._price[item] + 0.3 * random.normal(size=size),
        }
        for label in _OFFSETS:
            batch[label] = (random.random(size) < self._rates(label, batch)).astype(np.float32)
        batch["conversion"] *= batch["click"]
        batch["clicked"] = batch["click"] > 0  # which examples have a second label
        known = random.random((2, size)) < [[0.97], [0.99]]
        batch["price"] = np.where(known[0], batch["price"], np.nan)
        batch["category"] = np.where(known[1], batch["category"], 0)
        batch["wait"] = random.exponential(20.0, size)  # from the label to its training
        batch["delay"] = random.exponential(10.0, size)  # from the event to its label
        self._drift()
        return batch

    def shift(self, column: str, factors: Mapping[int, float]) -> None:
        """Multiplies the traffic of some values; that of a value without traffic is its factor."""
        shares = self.shares[column].copy()
        for value, factor in factors.items():
            shares[value] = shares[value] * factor or factor
        self.shares[column] = _normed(shares)

    def _drawn(self, column: str, size: int) -> Array:
        shares = self.shares[column]
        return np.searchsorted(shares.cumsum()[:-1], self.random.random(size), side="right")

    def _rates(self, label: str, batch: Batch) -> Array:
        tastes = self._tastes[label]
        group = np.searchsorted(AGES, self._age[batch["user"]], side="right")
        terms = {
            "user": tastes["user"][batch["user"]],
            "item": tastes["item"][batch["item"]],
            "country": tastes["country"][batch["country"]],
            "device": tastes["device"][batch["device"], batch["category"]],
            "age": tastes["age"][group, batch["channel"]],
        }
        odds = _OFFSETS[label] + _PRICE[label] * batch["price"]
        odds = odds + sum(_WEIGHTS[name] * term for name, term in terms.items())
        return np.asarray(1 / (1 + np.exp(-odds)))

    def _drift(self) -> None:
        for tastes in self._tastes.values():
            new = self.random.normal(size=ITEMS)
            tastes["item"] = (1 - _DRIFT**2) ** 0.5 * tastes["item"] + _DRIFT * new


def _normed(weights: Array) -> Array:
    return np.asarray(weights / weights.sum())
