"""The record of one step: snapshots now, bytes later."""

from __future__ import annotations

from collections.abc import Sequence

from rec_summary._pb.summary_pb2 import Event
from rec_summary.records.names import Kind
from rec_summary.records.trouble import Troubles
from rec_summary.values.summary import SummaryValue


class StepRecord:
    """All values of one step, as one `records.sink.Record`."""

    kind = Kind.SUMMARY
    once = False

    def __init__(
        self, step: int, wall_time: float, values: Sequence[SummaryValue], troubles: Troubles
    ) -> None:
        """Takes the snapshots of a step.

        Args:
            step: The step that they belong to, from 1 on.
            wall_time: When they were taken, in seconds since the epoch.
            values: The snapshots.
            troubles: Told of each value that cannot be encoded; the others are kept.
        """
        self._step = step
        self._wall_time = wall_time
        self._values = values
        self._troubles = troubles
        self.nbytes = sum(value.nbytes for value in values)

    def encode(self) -> bytes:
        """Returns the serialised event."""
        event = Event(wall_time=self._wall_time, step=self._step)
        event.summary.SetInParent()
        for value in self._values:
            try:
                built = value.build()
            except Exception as error:  # noqa: BLE001  # one bad value must not cost the others
                self._troubles.report(f"value {value.tag}", error)
            else:
                event.summary.value.append(built)
        return bytes(event.SerializeToString())
