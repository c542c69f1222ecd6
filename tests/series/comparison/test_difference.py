"""What differs between two runs."""

from __future__ import annotations

from math import inf, nan
from pathlib import Path

import pytest

from rec_summary._pb.lineage_pb2 import DatasetGraph, Operation, OperationParameter
from rec_summary.records.reading.runs import find_runs
from rec_summary.series.comparison.difference import (
    Difference,
    FactChange,
    GraphChange,
    ValueChange,
    difference,
)
from rec_summary.series.options import EVERYTHING, ExportOptions, Selection
from rec_summary.series.report import Report
from tests.support.corpus import (
    custom,
    evaluation,
    event,
    everything,
    finished,
    graph_event,
    losses,
    pipeline,
    put,
    scalar,
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
    assert found.same_values > 0


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
    described.hyper_parameters.batch_size = 128
    put(
        tmp_path / "2",
        pipeline(0, 128),
        *losses(range(1, 21)),
        lineage_event(5, train_lineage=described),
        evaluation(6, '{"auc": 0.5}', 20),
    )
    found = compared(tmp_path)
    facts = {
        section: {change.name: change.values for change in changes if change.name != "nan"}
        for section, changes in found.facts.items()
    }
    assert facts == {
        "versions": {"mindspore_version": (None, "2.7.0")},
        "data": {
            "batch_size": (64, 128),
            "pipeline.BatchDataset.batch_size": ("64", "128"),
            "valid_dataset_path": (None, "/data/valid"),
            "valid_dataset_size": (None, 1 << 33),
        },
        "parameters": {
            "optimizer": ("Adam", "SGD"),
            "learning_rate": (0.125, 0.5),
            "note": ("a|b `c` <i>x</i>\nnext", None),
            "depth": (3, None),
            "dropout": (0.25, None),
            "opt.beta": (0.5, None),
            "budget": (1 << 40, None),
            "warm": (True, None),
        },
        "settings": {"collect_freq": (None, "5")},
        "results": {
            "samples": (1280, None),
            "auc": (None, 0.5),
            "best/auc": (None, 0.5),
            "best_step/auc": (None, 20),
        },
    }


def test_packages_are_compared_and_commits_and_command_lines_are_not(tmp_path: Path) -> None:
    for name, version in (("1", "1.26"), ("2", "2.0")):
        described = train(git_commit=name * 40, git_dirty=True, command=["python", name])
        described.run_state.packages.update({"numpy": version, "torch": "2.3"})
        put(tmp_path / name, *losses(range(1, 3)), lineage_event(5, train_lineage=described))
    [(section, [change])] = compared(tmp_path).facts.items()
    assert (section, change.name, change.values) == ("versions", "numpy", ("1.26", "2.0"))


def _pipeline(*names: str) -> DatasetGraph:
    """Returns a pipeline of operations from the last one back to the source."""
    graph = DatasetGraph(sampler=Operation(operationParam=_named("sampler_name", names[-1])))
    for name in reversed(names[:-1]):
        operation = Operation(operationParam=_named("tensor_op_name", f"{name}Op"))
        graph = DatasetGraph(
            parameter=_named("op_type", name), operations=[operation], children=[graph]
        )
    return graph


def _named(key: str, name: str) -> OperationParameter:
    return OperationParameter(mapStr={key: name} if name else {}, mapInt={"n": len(name)})


def test_of_several_pipelines_the_last_one_of_the_lowest_rank_is_compared(tmp_path: Path) -> None:
    first, last = (
        lineage_event(at, dataset_graph=_pipeline(*names))
        for at, names in ((0, ("Filter", "Random")), (1, ("Map", "Map", "", "Random")))
    )
    put(tmp_path / "1", first, last, *losses(range(1, 5)))
    put(tmp_path / "1", first, *losses(range(1, 5)), rank=1)
    put(tmp_path / "2", *losses(range(1, 5)))
    data = {change.name: change.values for change in compared(tmp_path).facts["data"]}
    operations = {"Map": 3, "Map_2": 3, "MapOp": 5, "MapOp_2": 5, "Op": 2, "unnamed": 0}
    assert data == {
        f"pipeline.{name}{key}": (value, None)
        for name, length in {**operations, "Random": 6}.items()
        for key, value in (("", True), (".n", str(length)))
    }


def test_the_lowest_rank_and_the_first_of_two_writers_are_compared(tmp_path: Path) -> None:
    for name in ("1", "2"):
        put(tmp_path / name, pipeline(0), graph_event(8), *losses(range(1, 41)))
    put(tmp_path / "1", *losses(range(1, 41), salt=1), stamp=1)
    put(tmp_path / "1", pipeline(0, 9), graph_event(9), *losses(range(1, 41), salt=2), rank=1)
    assert compared(tmp_path).empty


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


def test_last_values_are_compared_and_other_tags_are_only_there_once(tmp_path: Path) -> None:
    put(tmp_path / "1", event(9, scalar("loss", 1)), event(10, scalar("loss", 4)))
    put(tmp_path / "1", event(9, scalar("loss", 7)), *losses([30], tag="old"), stamp=1)
    put(tmp_path / "2", event(9, scalar("loss", 1)), event(20, scalar("loss", 5)))
    put(tmp_path / "2", *losses([30], tag="new/b"), *losses([30], tag="new/a"), stamp=1)
    found = compared(tmp_path)
    # What a restart supersedes is not the last value.
    assert found.values == [ValueChange("loss", (7, 5), (9, 20), -2)]
    assert found.only == (["old"], ["new/a", "new/b"])
    assert found.same_values == 0
    earlier = compared(tmp_path, Selection(ExportOptions(tags="loss", until=9)))
    assert earlier.values == [ValueChange("loss", (7, 1), (9, 9), -6)]
    assert earlier.only == ([], [])


def test_the_greatest_relative_difference_comes_first(tmp_path: Path) -> None:
    pairs = {"a": (100, 101), "b": (1, 1.5), "c": (-1, 1), "d": (nan, 1), "e": (inf, inf)}
    pairs |= {"f": (nan, nan), "g": (0, 0.5), "h": (2, 2)}
    for run in range(2):
        values = (scalar(tag, pair[run]) for tag, pair in pairs.items())
        put(tmp_path / str(run), event(1, *values))
    found = compared(tmp_path)
    assert [change.tag for change in found.values] == ["d", "c", "g", "b", "a"]
    assert found.same_values == 3


def test_a_metric_with_a_last_value_is_no_result_as_well(tmp_path: Path) -> None:
    for number, name in enumerate(("1", "2")):
        values = scalar("recommender/auc/last_1000", number), scalar("eval/auc", number)
        auc = evaluation(6, f'{{"auc": {number}}}', 1)
        put(tmp_path / name, *losses([1]), event(1, *values), auc)
    found = compared(tmp_path)
    assert [change.tag for change in found.values] == ["eval/auc", "recommender/auc/last_1000"]
    names = {change.name for change in found.facts["results"]}
    assert "best/recommender/auc/last_1000" in names
    assert names.isdisjoint({"auc", "recommender/auc/last_1000"})


def test_the_last_of_several_values_of_a_step_is_compared(tmp_path: Path) -> None:
    put(tmp_path / "1", *(event(1, scalar("loss", number)) for number in (5, 6, 7)))
    put(tmp_path / "2", event(1, scalar("loss", 7)))
    assert compared(tmp_path).values == []


def test_one_difference_of_any_kind_is_one() -> None:
    assert Difference({}, None, []).empty
    assert not Difference({"data": [FactChange("batch_size", (1, 2))]}, None, []).empty
    assert not Difference({}, GraphChange((1, 2), {}, {"ReLU": 1}), []).empty
    assert not Difference({}, None, [ValueChange("loss", (1, 2), (3, 3), 1)]).empty
    assert not Difference({}, None, [], only=([], ["loss"])).empty


@pytest.mark.parametrize(
    "tag", ["rec_summary/bytes", "recommender/host/memory", "recommender/throughput/steps"]
)
def test_time_and_telemetry_are_not_compared(tmp_path: Path, tag: str) -> None:
    for name in ("1", "2"):
        own = losses(range(1, 5), tag=tag, salt=int(name))
        put(tmp_path / name, *losses(range(1, 5)), *own)
    assert compared(tmp_path).empty


def test_a_fact_of_one_run_only_is_missing_in_the_other(tmp_path: Path) -> None:
    put(tmp_path / "1", *losses(range(1, 5)))
    put(tmp_path / "2", custom(0), *losses(range(1, 5)))
    parameters = compared(tmp_path).facts["parameters"]
    assert FactChange("depth", (None, 3)) in parameters
    assert all(change.values[0] is None for change in parameters)
