"""The tags that the series of a TensorBoard run are shown with."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from rec_summary.series.report import Report
from rec_summary.series.text import printable
from rec_summary.tensorboard.dashboards.points import Point
from rec_summary.tensorboard.tag_groups import grouped

# TensorBoard gives a meaning to tags that begin so: no recorded series may have one.
_RESERVED: Final = "_hparams_/"


class Tags:
    """Gives tags to the series of one TensorBoard run.

    TensorBoard distinguishes the series of a run by tag alone, and takes the plugin of a tag from
    its first value. One tag for two kinds of value breaks the scalar page. So a series is known
    by the recorded tag, the plugin, and the kind of record. The first series with a tag keeps
    it. A later one gets the name of its plugin added, `loss` becomes `loss/histograms`, and
    underscores if that tag exists too. Tags that few people look at are in groups of their own.
    """

    def __init__(
        self, run: str, report: Report, state: Iterable[tuple[str, str, str, str]] = ()
    ) -> None:
        """Begins with the series of an earlier export; their metadata is written already.

        Args:
            run: The name of the TensorBoard run.
            report: Takes notes of tags that had to be changed.
            state: Recorded tag, plugin, kind, and the tag that is shown, of each series.
        """
        self._run = run
        self._report = report
        self._shown = {(tag, plugin, kind): name for tag, plugin, kind, name in state}
        self._taken = set(self._shown.values())
        self._recorded = {tag for tag, _, _ in self._shown}

    def has(self, tag: str) -> bool:
        """Whether a series that was recorded under `tag` has a tag."""
        return tag in self._recorded

    def shown(self, tag: str, plugin: str, kind: str) -> str | None:
        """Returns the tag that a series is shown with; None if it has none yet."""
        return self._shown.get((tag, plugin, kind))

    def of(self, plugin: str) -> list[str]:
        """Returns the tags of all series of a plugin, as they are shown, in order."""
        return sorted(shown for (_, name, _), shown in self._shown.items() if name == plugin)

    def state(self) -> list[tuple[str, str, str, str]]:
        """Returns what a later export begins with."""
        return [(*series, name) for series, name in self._shown.items()]

    def place(self, point: Point, kind: str) -> Any:
        """Returns the point's value with its tag, and with metadata if it is the series' first.

        Args:
            point: The value; it is changed in place.
            kind: The kind of record that it comes from.
        """
        value = point.value
        value.tag, is_first = self.name(point, kind)
        if is_first:
            value.metadata.CopyFrom(point.plugin.metadata)
        return value

    def name(self, point: Point, kind: str) -> tuple[str, bool]:
        """Returns the tag that a point is shown with, and whether it is the series' first."""
        key = (point.tag, point.plugin.name, kind)
        shown = self._shown.get(key)
        if shown is not None:
            return shown, False
        shown = self._shown[key] = self._choose(point)
        self._recorded.add(point.tag)
        return shown, True

    def _choose(self, point: Point) -> str:
        name = grouped(point.tag)
        if name in self._taken or (name.startswith(_RESERVED) and not point.plugin.reserved):
            name = f"{name}/{point.plugin.name}"
            while name in self._taken:
                name += "_"
            self._report.note(
                f"run {printable(self._run)}: tag {printable(point.tag)!r} is used for more than "
                f"one kind of value; what is for {point.plugin.name} is shown as "
                f"{printable(name)!r}"
            )
        self._taken.add(name)
        return name
