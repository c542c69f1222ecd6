"""What differs between two runs."""

from __future__ import annotations

from pathlib import Path

from rec_summary.records.reading.runs import find_runs
from rec_summary.series.comparison.difference import Change, Difference, difference
from rec_summary.series.options import EVERYTHING, ExportOptions, Selection
from rec_summary.series.report import Report
from tests.support.corpus import (
    custom,
    evaluation,
    everything,
    finished,
    graph_event,
    losses,
    pipeline,
    put,
    train,
)
from tests.support.corpus import lineage as lineage_event
from tests.support.corpus import ranks as several_ranks


def compared(tmp_path: Path, selection: Selection = EVERYTHING) -> Difference:
    one, other = find_runs(tmp_path)
    return difference((one, other), selection, Report())


def test_a_run_does_not_differ_from_itself_elsewhere(tmp_path: Path) -> None:
    for name in ("one", "other"):
        everything(tmp_path / name)
    found = compared(tmp_path)
    assert found.empty
    assert found.same_curves > 0


def test_ranks_are_compared_by_the_lowest(tmp_path: Path) -> None:
    for name in ("one", "other"):
        several_ranks(tmp_path / name)
    assert compared(tmp_path).empty


def test_the_graph_is_found_behind_a_start_that_failed_before_it(tmp_path: Path) -> None:
    put(tmp_path / "one", *losses(range(1, 3)), graph_event(8))
    put(tmp_path / "other", *losses(range(1)))
    put(tmp_path / "other", *losses(range(1, 3)), graph_event(8), stamp=1)
    assert compared(tmp_path).graph is None


def test_facts_are_in_sections(tmp_path: Path) -> None:
    put(tmp_path / "1", custom(0), pipeline(0, 64), *losses(range(1, 21)), finished(5, 20))
    described = train(optimizer="SGD", rate=0.5, status=2, step=20, mindspore_version="2.7.0")
    described.run_state.settings["collect_freq"] = "5"
    put(
        tmp_path / "2",
        pipeline(0, 128),
        *losses(range(1, 21)),
        lineage_event(5, train_lineage=described),
        evaluation(6, '{"auc": 0.5}', 20),
    )
    found = compared(tmp_path)
    facts = {
        section: {change.name: change.values for change in changes}
        for section, changes in found.facts.items()
    }
    assert facts["parameters"]["optimizer"] == ("Adam", "SGD")
    assert facts["parameters"]["learning_rate"] == (0.125, 0.5)
    assert facts["parameters"]["dropout"][1] is None
    assert facts["versions"]["mindspore_version"][1] == "2.7.0"
    assert facts["settings"] == {"collect_freq": (None, "5")}
    assert facts["results"]["auc"] == (None, 0.5)
    assert {name for name in facts["data"] if name.endswith("batch_size")}
    assert facts["data"]["valid_dataset_path"] == (None, "/data/valid")
    assert "last_record" not in facts["results"]


def test_operators_are_compared_by_name_without_their_numbers(tmp_path: Path) -> None:
    for name, wide in (("1", 8), ("2", 16)):
        event = graph_event(wide)
        nodes = event.graph_def.node
        for number, node in enumerate(nodes):
            node.full_name = node.full_name.replace("-op0", f"-op{number + wide}")
        if wide == 16:
            nodes.add(name="9", op_type="ReLU", full_name="Default/net/ReLU-op1")
            nodes.add(name="10", op_type="ReLU", full_name="Default/net/ReLU-op2")
        put(tmp_path / name, event, *losses(range(1, 5)))
    found = compared(tmp_path).graph
    assert found is not None
    assert found.nodes == (7, 9)
    assert found.removed == {
        f"{name} [64, 8]": 1 for name in ("inputs0", "emb.table", "moment1.emb.table")
    }
    assert found.added == {
        "Default/net/ReLU": 2,
        **{f"{name} [64, 16]": 1 for name in ("inputs0", "emb.table", "moment1.emb.table")},
    }


def test_curves_part_and_others_are_only_there_once(tmp_path: Path) -> None:
    put(tmp_path / "1", *losses(range(1, 21)), *losses(range(21, 31), tag="old"))
    put(
        tmp_path / "2",
        *losses(range(1, 11)),
        *losses(range(11, 21), salt=3),
        *losses(range(21, 31), tag="new"),
    )
    found = compared(tmp_path)
    [change] = found.curves
    assert change.parting is not None
    assert (change.tag, change.parting.parts_at) == ("loss", 11)
    assert found.only == (["old"], ["new"])
    assert compared(tmp_path, Selection(ExportOptions(tags="loss", until=10))).curves == []


def test_time_and_telemetry_are_not_compared(tmp_path: Path) -> None:
    for name in ("1", "2"):
        own = losses(range(1, 5), tag="rec_summary/bytes", salt=int(name))
        put(tmp_path / name, *losses(range(1, 5)), *own)
    assert compared(tmp_path).empty


def test_a_fact_of_one_run_only_is_missing_in_the_other(tmp_path: Path) -> None:
    put(tmp_path / "1", *losses(range(1, 5)))
    put(tmp_path / "2", custom(0), *losses(range(1, 5)))
    parameters = compared(tmp_path).facts["parameters"]
    assert Change("depth", (None, 3)) in parameters
    assert all(change.values[0] is None for change in parameters)
