"""What the model sees of an impression: the columns of a batch, and how they are encoded.

Both sources of data speak `Impressions`; the model speaks `Batch`. Everything between the
two (buckets, offsets, hashed crosses) is here, so that both sources train the same model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

AGE_EDGES = np.array([18, 25, 35, 45, 50, 56])  # the age groups of the later MovieLens sets
AGE_GROUPS = ("under 18", "18-24", "25-34", "35-44", "45-49", "50-55", "56+")
YOUNG = 1  # the number of the group 18-24
GENDERS = ("F", "M")
HOURS, WEEKDAYS = 24, 7
CROSS_BUCKETS = 1 << 16
GENRE_SLOTS = 6  # no film of MovieLens 100K has more genres

DAY_SECONDS = 86_400
_EPOCH_WEEKDAY = 3  # 1970-01-01 was a Thursday; Monday is 0


class Batch(NamedTuple):
    """One batch, in the order in which the network takes its inputs. B rows each."""

    user: npt.NDArray[np.int32]  # [B]
    item: npt.NDArray[np.int32]  # [B]
    context: npt.NDArray[np.int32]  # [B, 5]: age group, gender, occupation, hour, weekday
    genres: npt.NDArray[np.float32]  # [B, genres], multi-hot
    crosses: npt.NDArray[np.int32]  # [B, GENRE_SLOTS + 2], buckets of a hash
    click: npt.NDArray[np.float32]  # [B], the label: 1 for a click

    def rows(self, start: int, stop: int) -> Batch:
        """Returns the rows from `start` up to but without `stop`, as views."""
        return self._make(column[start:stop] for column in self)

    def followed_by(self, other: Batch) -> Batch:
        """Returns the rows of both."""
        return self._make(map(np.concatenate, zip(self, other, strict=True)))


class TaskBatch(NamedTuple):
    """A `Batch` with two labels, and what was logged when its impressions were served."""

    user: npt.NDArray[np.int32]
    item: npt.NDArray[np.int32]
    context: npt.NDArray[np.int32]
    genres: npt.NDArray[np.float32]
    crosses: npt.NDArray[np.int32]
    click: npt.NDArray[np.float32]
    loved: npt.NDArray[np.float32]  # [B], the second label: 1 for the highest rating
    served: npt.NDArray[np.float32]  # [B], the served probability of a click; NaN for none
    served_age: npt.NDArray[np.float32]  # [B], seconds since the model that served was built

    rows = Batch.rows
    followed_by = Batch.followed_by


@dataclass(frozen=True)
class Vocabulary:
    """How many different values each kind of id has; ids run from 0 to the size minus 1."""

    users: int
    items: int
    genres: int
    occupations: int
    genre_names: tuple[str, ...] = ()

    @property
    def context_sizes(self) -> tuple[int, ...]:
        """The number of values of each column of `Batch.context`."""
        return (len(AGE_EDGES) + 1, len(GENDERS), self.occupations, HOURS, WEEKDAYS)


@dataclass(frozen=True)
class Impressions:
    """Films shown to people and whether each was clicked: n rows, oldest first."""

    user: npt.NDArray[np.int64]  # [n]
    item: npt.NDArray[np.int64]  # [n]
    age: npt.NDArray[np.int64]  # [n], years
    gender: npt.NDArray[np.int64]  # [n], index into GENDERS
    occupation: npt.NDArray[np.int64]  # [n]
    genres: npt.NDArray[np.bool_]  # [n, genres]
    seconds: npt.NDArray[np.int64]  # [n], Unix time, UTC
    clicked: npt.NDArray[np.bool_]  # [n]
    loved: npt.NDArray[np.bool_]  # [n], clicked and rated highest

    def __len__(self) -> int:
        return len(self.user)


def encode(impressions: Impressions, vocabulary: Vocabulary) -> Batch:
    """Encodes impressions, row for row, as the columns of the model."""
    days, second_of_day = np.divmod(impressions.seconds, DAY_SECONDS)
    age_group = np.searchsorted(AGE_EDGES, impressions.age, side="right")
    context = np.stack(
        [
            age_group,
            impressions.gender,
            impressions.occupation,
            second_of_day // 3600,
            (days + _EPOCH_WEEKDAY) % WEEKDAYS,
        ],
        axis=1,
    )
    # All context fields share one table; an offset gives each field its own rows.
    offsets = np.cumsum((0, *vocabulary.context_sizes[:-1]))
    slots = _genre_slots(impressions.genres)
    crosses = np.column_stack(
        [
            np.where(slots > 0, _cross(impressions.user[:, None], slots, salt=1), 0),
            _cross(age_group, impressions.item, salt=2),
            _cross(impressions.occupation, impressions.item, salt=3),
        ]
    )
    return Batch(
        user=impressions.user.astype(np.int32),
        item=impressions.item.astype(np.int32),
        context=(context + offsets).astype(np.int32),
        genres=impressions.genres.astype(np.float32),
        crosses=crosses.astype(np.int32),
        click=impressions.clicked.astype(np.float32),
    )


def _genre_slots(genres: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Lists each row's genres, counted from 1, in GENRE_SLOTS columns padded with 0."""
    first = np.argsort(~genres, axis=1, kind="stable")[:, :GENRE_SLOTS]
    return np.where(np.take_along_axis(genres, first, axis=1), first + 1, 0)


def _cross(
    left: npt.NDArray[np.int64], right: npt.NDArray[np.int64], *, salt: int
) -> npt.NDArray[np.int64]:
    """Hashes pairs of ids to buckets 1 … CROSS_BUCKETS - 1; bucket 0 is for "no such pair"."""
    mixed = left.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed = mixed ^ (right.astype(np.uint64) * np.uint64(0xC2B2AE3D27D4EB4F))
    mixed = (mixed + np.uint64(salt)) * np.uint64(0xFF51AFD7ED558CCD)
    # The high bits of a product depend on all bits of its factors, the low ones do not.
    return (mixed >> np.uint64(33)).astype(np.int64) % (CROSS_BUCKETS - 1) + 1
