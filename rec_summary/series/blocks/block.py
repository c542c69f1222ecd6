"""Blocks of records that were looked at together, see `block_scan`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import starmap
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rec_summary.series.blocks.mixed import Series

Bytes = npt.NDArray[np.uint8]
Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_GLANCE: Final = 64  # records


class Part(NamedTuple):
    """The series of some records.

    Attributes:
        firsts: The first step of each series, which is a kind of value and a tag.
        lasts: The last step of each.
        values: How many values of each kind there are.
    """

    firsts: dict[Series, int]
    lasts: dict[Series, int]
    values: dict[str, int]


@dataclass(frozen=True)
class Block:
    """Records in a row; of those with scalars alone, everything is known.

    Attributes:
        bounds: Where in the file each record begins, and where the last one ends, of shape
            [n + 1], in bytes.
        kind: The number of each record's series in `series`; -1 where the ordinary way is needed,
            of shape [n].
        series: The series of records, each a kind of value and a tag; each tuple once.
        steps: Of shape [n], as are `wall_times`; 0 where `kind` is -1.
        wall_times: Seconds since the epoch, finite.
        values: The numbers of each kind, of shape [records of that kind, its scalars].
        places: For each kind, which records are of it, ascending.
        data: The same records as TensorBoard has them, framed; undefined where `kind` is -1.
        larger: Those that have another size there, by their number.
        cuts: These numbers, ascending.
        breaks: Where `kind` is -1, or a step is lower than the one before, ascending.
    """

    bounds: Integers
    kind: Integers
    series: tuple[tuple[Series, ...], ...]
    steps: Integers
    wall_times: Floats
    values: tuple[npt.NDArray[np.float32], ...]
    places: tuple[Integers, ...]
    data: Bytes
    larger: Mapping[int, bytes]
    cuts: Integers
    breaks: Integers

    def end(self, first: int) -> int:
        """Returns the first record behind `first` that needs the ordinary way."""
        place = int(np.searchsorted(self.breaks, first))
        return int(self.breaks[place]) if place < len(self.breaks) else len(self.kind)

    def part(self, first: int, last: int) -> Part:
        """Returns the series of the records from `first` up to, not including, `last`."""
        part = Part({}, {}, {})
        for number in np.unique(self.kind[first:last]).tolist():
            series, places = self.series[number], self.places[number]
            start, end = np.searchsorted(places, (first, last))
            low, high = int(self.steps[places[start]]), int(self.steps[places[end - 1]])
            for each in series:
                part.firsts[each] = min(part.firsts.get(each, low), low)
                part.lasts[each] = max(part.lasts.get(each, high), high)
                part.values[each[0]] = part.values.get(each[0], 0) + int(end - start)
        return part

    def framed(self, first: int, last: int) -> list[bytes | memoryview]:
        """Returns the frames of the records from `first` up to, not including, `last`.

        The last record is in the last piece, by itself.
        """
        start, since = int(self.bounds[0]), first
        pieces: list[bytes | memoryview] = []
        cuts = self.cuts[slice(*np.searchsorted(self.cuts, (first, last)))].tolist()
        for number in sorted({*cuts, last - 1}):
            if since < number:
                pieces.append(self._slice(since, number, start))
            piece = self.larger.get(number)
            pieces.append(self._slice(number, number + 1, start) if piece is None else piece)
            since = number + 1
        return pieces

    def _slice(self, first: int, last: int, start: int) -> memoryview:
        return self.data[self.bounds[first] - start : self.bounds[last] - start].data


def passable(block: Block, first: int, knows: Callable[[str, str], bool]) -> int:
    """Returns how far records can be passed on from `first`.

    The records of the last step are not among them: what follows may supersede them.

    Args:
        block: The records.
        first: The first one.
        knows: Whether a series has been met before, by its kind and tag.
    """
    end = block.end(first + 1) if block.kind[first] >= 0 else first
    last, size, known = first, _GLANCE, set[int]()
    while last < end:  # further and further, lest a stranger nearby cost a look at all of them
        kinds = block.kind[last : min(last + size, end)]
        strange = [
            number
            for number in np.unique(kinds).tolist()
            if number not in known and not all(starmap(knows, block.series[number]))
        ]
        if strange:
            last += int(np.isin(kinds, strange).argmax())
            break
        known.update(kinds.tolist())
        last, size = last + len(kinds), 2 * size
    if last > first:
        last = first + int(np.searchsorted(block.steps[first:last], block.steps[last - 1]))
    return last
