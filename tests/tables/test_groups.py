"""Groups of runs as DataFrames."""

from __future__ import annotations

from pathlib import Path

import pytest

import rec_summary
from rec_summary.tables.frames import Records
from tests.support.record_dirs import custom, event, lineage, scalar, train, write_segment


@pytest.fixture
def records(tmp_path: Path) -> Records:
    """Three runs, of which two differ in their seed only and are recorded at other steps."""
    for name, rate, seed, steps in (
        ("a", 0.5, 1, (1, 3, 5)),
        ("b", 0.5, 2, (2, 4)),
        ("c", 0.25, 1, (1,)),
    ):
        described = train()
        described.hyper_parameters.learning_rate = rate
        write_segment(
            tmp_path / name,
            lineage(train_lineage=described),
            lineage(user_defined_info=custom({"seed": seed, "group": f"rate {rate}"})),
            *(event(step, scalar("loss", step * rate + seed)) for step in steps),
        )
    return rec_summary.load(tmp_path)


def test_the_members_of_a_group_are_brought_to_the_same_steps(records: Records) -> None:
    groups = records.groups("seed")
    assert groups.members == {"learning_rate=0.5": ("a", "b"), "learning_rate=0.25": ("c",)}
    table = groups.scalars()
    first = table[table["group"] == "learning_rate=0.5"]
    assert first["step"].tolist() == [1, 2, 3, 4, 5]
    assert first["members"].tolist() == [1, 2, 2, 2, 1]
    assert first["mean"].tolist() == [1.5, 2.5, 3.0, 3.5, 3.5]
    assert first["min"].tolist() == [1.5, 2.0, 2.5, 3.0, 3.5]
    assert first["max"].tolist() == [1.5, 3.0, 3.5, 4.0, 3.5]
    assert list(table.columns) == ["group", "tag", "step", "members", "mean", "std", "min", "max"]


def test_groups_of_the_lineage_and_of_other_tables(records: Records) -> None:
    groups = records.groups()
    assert set(groups.members) == {"rate 0.5", "rate 0.25"}
    counts = records.lineage().groupby(groups.of_runs)["learning_rate"].count()
    assert counts.to_dict() == {"rate 0.25": 1, "rate 0.5": 2}


def test_a_choice_without_scalars_gives_an_empty_table(tmp_path: Path) -> None:
    described = lineage(user_defined_info=custom({"group": "x"}))
    write_segment(tmp_path, described)
    assert rec_summary.load(tmp_path).groups().scalars().empty
