"""Groups of runs as DataFrames: `rec_summary.load(SRC).groups("seed")`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rec_summary.series.comparison.curves import Curve
from rec_summary.series.comparison.groups import Band, band

if TYPE_CHECKING:
    import pandas as pd

_COLUMNS: Final = ("step", "members", "mean", "std", "min", "max")  # in the order of a band


class Groups:
    """Groups of runs, such as those that differ in nothing but their seed.

    Attributes:
        members: The names of the runs of each group, by its name.
    """

    def __init__(
        self, scalars: Callable[[], pd.DataFrame], members: Mapping[str, Sequence[str]]
    ) -> None:
        """Use `Records.groups`."""
        self.members = {name: tuple(runs) for name, runs in members.items()}
        self._scalars = scalars

    def __repr__(self) -> str:
        counts = ", ".join(f"{name!r}: {len(runs)}" for name, runs in self.members.items())
        return f"<Groups of runs: {counts}>"

    @property
    def of_runs(self) -> pd.Series[Any]:
        """The name of the group of each run, to group other tables by.

        `records.lineage().groupby(groups.of_runs)["loss"].agg(["mean", "std"])`.
        """
        import pandas as pd

        names = {run: name for name, runs in self.members.items() for run in runs}
        return pd.Series(names, name="group", dtype="object").rename_axis("run")

    def scalars(self) -> pd.DataFrame:
        """Returns the mean and the spread of all scalars of each group.

        The members are brought to the same steps: all steps at which one of them has a value.
        Between two values of a member, its value is interpolated linearly; before its first and
        after its last one it does not count. Of several ranks, each is a member.

        Returns:
            `group` and `tag` (categories), `step`, `members` (how many have a value there),
            `mean`, `std` (the standard deviation; NaN for a single one), `min`, `max`.
        """
        import pandas as pd

        table = self._scalars()
        names = self.of_runs
        table = table[table["run"].isin(names.index)]
        table = table.assign(group=table["run"].astype("object").map(names))
        parts = []
        for group, tag, values in self._bands(table):
            statistics = dict(zip(_COLUMNS, values, strict=True))
            parts.append(pd.DataFrame({"group": group, "tag": tag, **statistics}))
        columns = ["group", "tag", *_COLUMNS]
        bands = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=columns)
        return bands.astype({"group": "category", "tag": "category"})

    def _bands(self, table: pd.DataFrame) -> Iterator[tuple[str, str, Band]]:
        for (group, tag), values in table.groupby(["group", "tag"], observed=True, sort=True):
            members = values.groupby(["run", "rank"], observed=True, sort=True)
            curves = [
                Curve(np.asarray(member["step"]), np.asarray(member["value"], np.float64))
                for _, member in members
            ]
            yield group, tag, band(curves)
