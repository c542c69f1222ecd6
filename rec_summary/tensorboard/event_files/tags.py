"""What a series of values is called in TensorBoard.

TensorBoard tells the series of a run apart by tag alone, and takes the plugin of a tag
from its first value. One tag for two kinds of value breaks the scalar page, so every
series here has a tag of its own.
"""

from __future__ import annotations

from typing import Any, Final

from rec_summary.series.report import Tally
from rec_summary.series.words import printable
from rec_summary.tensorboard.dashboards.points import Point

# Their names have a meaning to TensorBoard: nothing from a record may take them.
_RESERVED: Final = "_hparams_/"


class Tags:
    """Gives tags to the series of one TensorBoard run.

    A series is known by where it comes from: the recorded tag, the plugin, and the kind of
    record. The first one to want a tag has it; a later one gets the plugin's name added,
    `loss` becoming `loss/histograms`, and underscores if that is taken as well.
    """

    def __init__(self, run: str, tally: Tally) -> None:
        """Begins with no tags; `tally` is told of those that had to be changed."""
        self._run = run
        self._tally = tally
        self._names: dict[tuple[str, str, str], str] = {}
        self._taken: set[str] = set()
        self._recorded: set[str] = set()

    def knows(self, tag: str) -> bool:
        """Whether a series that was recorded under `tag` has a place."""
        return tag in self._recorded

    def keeps(self, tag: str, plugin: str, kind: str) -> bool:
        """Whether a series has its place, under the tag that was recorded."""
        return self._names.get((tag, plugin, kind)) == tag

    def of(self, plugin: str) -> list[str]:
        """Returns the tags of all series of a plugin, as they are shown, in order."""
        return sorted(shown for (_, name, _), shown in self._names.items() if name == plugin)

    def state(self) -> list[list[str]]:
        """Returns what `restore` needs; JSON can hold it."""
        return [[*series, name] for series, name in self._names.items()]

    def restore(self, state: list[list[str]]) -> None:
        """Goes on with the series of an earlier export; their metadata is written already."""
        self._names = {(tag, plugin, kind): name for tag, plugin, kind, name in state}
        self._taken = set(self._names.values())
        self._recorded = {tag for tag, _, _ in self._names}

    def place(self, point: Point, kind: str) -> Any:
        """Returns the point's value with its tag, and with metadata if it is the series' first.

        Args:
            point: The value; it is changed in place.
            kind: The kind of record that it comes from.
        """
        value = point.value
        key = (point.tag, point.plugin.name, kind)
        name = self._names.get(key)
        if name is None:
            name = self._names[key] = self._choose(point)
            self._recorded.add(point.tag)
            value.metadata.CopyFrom(point.plugin.metadata)
        value.tag = name
        return value

    def _choose(self, point: Point) -> str:
        name = point.tag
        if name in self._taken or (name.startswith(_RESERVED) and not point.plugin.reserved):
            name = f"{name}/{point.plugin.name}"
            while name in self._taken:
                name += "_"
            self._tally.note(
                f"run {printable(self._run)}: tag {printable(point.tag)!r} is used for more than "
                f"one kind of value; what is for {point.plugin.name} is shown as "
                f"{printable(name)!r}"
            )
        self._taken.add(name)
        return name
