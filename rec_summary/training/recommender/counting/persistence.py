"""Metric states as files in the record directory: for restarts, and as references for drift."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from google.protobuf.message import DecodeError

from rec_summary._pb.summary_pb2 import MetricStates
from rec_summary.errors import (
    DestinationError,
    RecordError,
    SourceError,
    os_errors_as,
    three_part,
    verbatim,
)
from rec_summary.metrics.distribution import Distribution
from rec_summary.metrics.drift import reference_arrays, reference_from_arrays
from rec_summary.metrics.state import State, kind_of, restore
from rec_summary.records.files import FILE_MODE, write_atomically
from rec_summary.records.format.framing import frame
from rec_summary.records.reading.reader import RecordReader
from rec_summary.values.recommender import encode_state, unpack_states

_REFERENCE: Final = "reference"
_FILE: Final = "a metrics file"


def state_path(directory: str, rank: int) -> str:
    """Returns the path of the state of a rank."""
    return os.path.join(directory, f"recommender_rank_{rank}.state")


def reference_path(directory: str, rank: int) -> str:
    """Returns the path of the reference that a rank has built."""
    return os.path.join(directory, f"recommender_rank_{rank}.reference")


def save(path: str, states: bytes) -> None:
    """Writes serialised `MetricStates` as one framed record; replaces the file atomically.

    Raises:
        DestinationError: It cannot be written.
    """
    expected = "a file in a directory that can be written to, on a disk with free space"
    failing = os_errors_as(DestinationError, _FILE, path, expected)
    with failing, write_atomically(path, FILE_MODE) as file:
        file.write(frame(states))


def load(path: str) -> MetricStates:
    """Reads a file of `save`.

    Raises:
        OSError: It cannot be read.
        SourceError: It is damaged.
    """
    try:
        with RecordReader(path) as reader:
            record = reader.read()
        if record is None:
            raise DecodeError("the file is empty")
        return MetricStates.FromString(record.payload)
    except (RecordError, DecodeError) as error:
        raise SourceError(_damaged(path, error)) from error


def pack(states: Mapping[str, State]) -> bytes:
    """Returns states by key as bytes of `MetricStates`. You can append its other fields."""
    return b"".join(
        encode_state(key, kind_of(state), state.arrays()) for key, state in states.items()
    )


def unpack(message: MetricStates) -> dict[str, State]:
    """Returns the states of a message by key.

    Raises:
        ValueError: A state is invalid.
    """
    stored = unpack_states(message)
    return {key: restore(kind, arrays) for key, (kind, arrays) in stored.items()}


def save_reference(path: str, reference: Mapping[str, Distribution]) -> None:
    """Writes a reference for drift.

    Raises:
        DestinationError: It cannot be written.
    """
    save(path, encode_state(_REFERENCE, _REFERENCE, reference_arrays(reference)))


def load_reference(path: str) -> dict[str, Distribution]:
    """Reads a file of `save_reference`.

    Raises:
        OSError: It cannot be read.
        SourceError: It is damaged, or is not a reference.
    """
    try:
        _, arrays = unpack_states(load(path))[_REFERENCE]
        return reference_from_arrays(arrays)
    except (KeyError, ValueError) as error:
        raise SourceError(_damaged(path, error)) from error


def _damaged(path: str, error: Exception) -> str:
    received = verbatim(f"{path} ({type(error).__name__}: {error})")
    return three_part(_FILE, received, "a file that rec_summary has written")
