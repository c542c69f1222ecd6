"""The record of one step: snapshots now, bytes later."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy.typing as npt

from rec_summary.records.failures import Troubles
from rec_summary.records.format.names import Kind
from rec_summary.values.summary import SummaryValue, TensorValue, encode_event


class TensorExporter(Protocol):
    """Something that also wants the tensors, such as `npy_export.NpyExporter`."""

    def export(self, tag: str, step: int, array: npt.NDArray[Any]) -> object:
        """Takes one tensor, on the writer's thread."""


class StepRecord:
    """All values of one step, as one `records.writing.task.Record`."""

    kind = Kind.SUMMARY
    once = False

    def __init__(
        self,
        step: int,
        wall_time: float,
        values: Sequence[SummaryValue],
        troubles: Troubles,
        exporter: TensorExporter | None = None,
    ) -> None:
        """Takes the snapshots of a step.

        Args:
            step: The step that they belong to, from 1 on.
            wall_time: When they were taken, in seconds since the epoch.
            values: The snapshots.
            troubles: Told of each value that cannot be encoded or exported; the others are
                kept.
            exporter: Also given each tensor; None for nobody.
        """
        self._step = step
        self._wall_time = wall_time
        self._values = values
        self._troubles = troubles
        self._exporter = exporter
        self.nbytes = sum(value.nbytes for value in values)

    def encode(self) -> bytes:
        """Returns the serialised event, and exports its tensors."""
        encoded = []
        for value in self._values:
            try:
                encoded.append(value.encode())
            except Exception as error:  # noqa: BLE001  # one bad value must not cost the others
                self._troubles.report(f"value {value.tag}", error)
            if self._exporter is not None and isinstance(value, TensorValue):
                self._export(self._exporter, value)
        return encode_event(self._step, self._wall_time, encoded)

    def _export(self, exporter: TensorExporter, value: TensorValue) -> None:
        try:
            exporter.export(value.tag, self._step, value.array)
        except Exception as error:  # noqa: BLE001  # the record matters more
            # One kind for all tags: a full disk would be logged once for each of them.
            text = f"tensor {value.tag}: {type(error).__name__}: {error}"
            self._troubles.report("npy export", text)
