"""Where in a record of scalars things are, and which records have them in the same places."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rec_summary.records.format import framing
from rec_summary.series.batch import Bytes, Integers
from rec_summary.series.limits import LONGEST_TAG

_WALL_TIME, _STEP, _SUMMARY, _VALUE, _TAG = 0x09, 0x10, 0x2A, 0x0A, 0x0A
RECORDED: Final = 0x1D  # the key of a number in a record
_LONGEST_STEP: Final = 5  # bytes; a negative one takes ten
_MORE: Final = 0x80


class Layout(NamedTuple):
    """Where in a payload things are.

    Attributes:
        tags: The tag of each value.
        step: The place and the size of the step.
        numbers: The place of each number, behind its key.
    """

    tags: tuple[str, ...]
    step: tuple[int, int]
    numbers: tuple[int, ...]


def layout_of(payload: bytes) -> Layout | None:
    """Returns the layout of a record of scalars; None for every other record."""
    size = len(payload)
    if size < 12 or payload[0] != _WALL_TIME or payload[9] != _STEP:
        return None
    at = 10
    while payload[at] & _MORE:
        at += 1
        if at >= min(size - 2, 10 + _LONGEST_STEP):
            return None
    step = (10, at + 1 - 10)
    if payload[at + 1] != _SUMMARY:
        return None
    at, end = _length(payload, at + 2)
    if end != size:
        return None
    tags, numbers = [], []
    while at < end:
        if payload[at] != _VALUE:
            return None
        at, value_end = _length(payload, at + 1)
        if at >= value_end or value_end > end or payload[at] != _TAG:
            return None
        at, tag_end = _length(payload, at + 1)
        if at > tag_end or tag_end + 5 != value_end or payload[tag_end] != RECORDED:
            return None
        try:
            tag = payload[at:tag_end].decode("utf-8")
        except UnicodeDecodeError:
            return None
        if not tag or len(tag) > LONGEST_TAG or tag in tags:
            return None
        tags.append(tag)
        numbers.append(tag_end + 1)
        at = value_end
    return Layout(tuple(tags), step, tuple(numbers)) if tags else None


def _length(payload: bytes, at: int) -> tuple[int, int]:
    """Returns where a field's content begins and ends; nowhere, if that cannot be told."""
    if at < len(payload) and payload[at] < _MORE:
        return at + 1, at + 1 + payload[at]
    if at + 1 < len(payload) and 0 < payload[at + 1] < _MORE:
        return at + 2, at + 2 + (payload[at] & 0x7F | payload[at + 1] << 7)
    return len(payload), -1


def variable(layout: Layout) -> list[int]:
    """Returns the columns of a payload in which records of a layout may differ."""
    place, size = layout.step
    numbers = [number + byte for number in layout.numbers for byte in range(4)]
    return [*range(1, 9), *range(place, place + size), *numbers]


def alike(rows: Bytes, layout: Layout) -> npt.NDArray[np.bool_]:
    """Tells which rows have the layout of the first one, and its tags."""
    fixed = np.ones(rows.shape[1], np.bool_)
    fixed[[framing.HEADER_BYTES + column for column in variable(layout)]] = False
    fixed[-framing.FOOTER_BYTES :] = False
    same: npt.NDArray[np.bool_] = (rows[:, fixed] == rows[0, fixed]).all(axis=1)
    place, size = layout.step
    first = framing.HEADER_BYTES + place
    step = rows[:, first : first + size]
    same &= ((step >= _MORE) == (np.arange(size) < size - 1)).all(axis=1)
    return same


def steps_of(payloads: Bytes, place: int, size: int) -> Integers:
    """Returns the steps of records of one layout, of shape [n]."""
    found: Integers = np.zeros(len(payloads), np.int64)
    for byte in range(size):
        found |= (payloads[:, place + byte].astype(np.int64) & 0x7F) << (7 * byte)
    return found


def are_shortest(payloads: Bytes, place: int, size: int) -> npt.NDArray[np.bool_]:
    """Tells which steps other than 0 are in their shortest form, the only one that is written."""
    last: npt.NDArray[np.bool_] = payloads[:, place + size - 1] != 0
    return last


def are_quiet(payloads: Bytes, place: int) -> npt.NDArray[np.bool_]:
    """Tells which numbers are no signalling NaN, which becomes another one in Python's hands."""
    bits = np.ascontiguousarray(payloads[:, place : place + 4]).view("<u4")[:, 0]
    quiet: npt.NDArray[np.bool_] = ((bits & 0x7FC0_0000) != 0x7F80_0000) | (bits & 0x3F_FFFF == 0)
    return quiet
