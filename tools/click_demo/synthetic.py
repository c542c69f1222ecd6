"""A synthetic click stream, for machines that cannot fetch MovieLens. Seeded and endless.

A few people and films make most of the traffic (Zipf), and tastes drift, so that a model
which stops learning gets worse. Whether a film is clicked is drawn from a logistic model of
its quality, its genres and how well it fits the hidden taste of the person.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .features import GENDERS, GENRE_SLOTS, Impressions, Vocabulary

VOCABULARY = Vocabulary(users=1000, items=1500, genres=18, occupations=21)

_CHUNK = 2000  # impressions between two moves of the tastes
_DRIFT = 0.15  # the part of a taste that each move replaces
_TASTE_WIDTH = 4  # hidden dimensions of taste
_ZIPF_EXPONENT = 0.9
_GAP_SECONDS = 180.0  # the mean time between two impressions
_START = 874_724_710  # 1997-09-20, when MovieLens 100K begins, too


@dataclass(frozen=True)
class _World:
    """What does not change: the people and the films, one row each."""

    age: npt.NDArray[np.int64]
    gender: npt.NDArray[np.int64]
    occupation: npt.NDArray[np.int64]
    genres: npt.NDArray[np.bool_]
    quality: npt.NDArray[np.float64]
    traits: npt.NDArray[np.float64]


def impressions(seed: int) -> Iterator[Impressions]:
    """Yields the stream in chunks, without end; the same seed gives the same stream."""
    rng = np.random.default_rng(seed)
    world = _make_world(rng)
    user_traffic = _zipf(rng, VOCABULARY.users)
    item_traffic = _zipf(rng, VOCABULARY.items)
    taste = rng.normal(size=(VOCABULARY.users, _TASTE_WIDTH))
    genre_taste = rng.normal(size=(VOCABULARY.users, VOCABULARY.genres))
    now = float(_START)
    while True:
        user = rng.choice(VOCABULARY.users, _CHUNK, p=user_traffic)
        item = rng.choice(VOCABULARY.items, _CHUNK, p=item_traffic)
        genres = world.genres[item]
        liking = (genre_taste[user] * genres).sum(axis=1) / np.sqrt(genres.sum(axis=1))
        fit = (taste[user] * world.traits[item]).sum(axis=1) / math.sqrt(_TASTE_WIDTH)
        log_odds = world.quality[item] + liking + fit
        times = now + np.cumsum(rng.exponential(_GAP_SECONDS, _CHUNK))
        clicked = rng.random(_CHUNK) < 1 / (1 + np.exp(-log_odds))
        yield Impressions(
            user=user,
            item=item,
            age=world.age[user],
            gender=world.gender[user],
            occupation=world.occupation[user],
            genres=genres,
            seconds=times.astype(np.int64),
            clicked=clicked,
            loved=clicked & (log_odds > 1),
        )
        now = float(times[-1])
        taste, genre_taste = _drift(rng, taste), _drift(rng, genre_taste)


def _make_world(rng: np.random.Generator) -> _World:
    users, items = VOCABULARY.users, VOCABULARY.items
    genre_count = rng.integers(1, GENRE_SLOTS, items)
    order = rng.random((items, VOCABULARY.genres)).argsort(axis=1)
    return _World(
        age=rng.integers(12, 75, users),
        gender=rng.integers(len(GENDERS), size=users),
        occupation=rng.integers(VOCABULARY.occupations, size=users),
        genres=order < genre_count[:, None],  # so many of the genres, drawn at random
        quality=rng.normal(size=items),
        traits=rng.normal(size=(items, _TASTE_WIDTH)),
    )


def _zipf(rng: np.random.Generator, size: int) -> npt.NDArray[np.float64]:
    """Shares of the traffic that fall as a power of the rank; the ids are not in rank order."""
    weights = np.arange(1, size + 1) ** -_ZIPF_EXPONENT
    return rng.permutation(weights / weights.sum())


def _drift(rng: np.random.Generator, taste: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Moves tastes a little at random; their variance stays 1."""
    return math.sqrt(1 - _DRIFT**2) * taste + _DRIFT * rng.normal(size=taste.shape)
