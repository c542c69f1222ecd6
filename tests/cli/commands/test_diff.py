"""`rec-summary diff`, as users meet it."""

from __future__ import annotations

import json
from pathlib import Path

from rec_summary._pb.lineage_pb2 import RunState
from tests.support.command import flat, run
from tests.support.corpus import evaluation, graph_event, losses, put
from tests.support.record_dirs import event, lineage, scalar, train, write_segment


def test_what_differs_between_two_runs(three_runs: Path) -> None:
    done = run("diff", three_runs / "run_0", three_runs / "run_1")
    assert done.returncode == 1
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["learning_rate", "0.1", "0.01"] in lines
    assert ["auc", "0.6", "0.7"] in lines
    assert "1 tag with the same last value in both" in done.stdout


def test_ten_rows_are_listed_of_each_part_some(tmp_path: Path) -> None:
    for number, run_ in enumerate(("one", "other")):
        values = [scalar(f"tag_{tag:02}", tag + 1 + number) for tag in range(15)]
        own = [scalar(f"{run_}_{tag:02}", 1) for tag in range(12)]
        rate = train(status=RunState.FINISHED)
        rate.hyper_parameters.learning_rate = number
        write_segment(tmp_path / run_, event(1, *values, *own), lineage(train_lineage=rate))
    done = run("diff", tmp_path / "one", tmp_path / "other")
    listed = ("tag_02", "one_02", "other_02", "learning_rate")
    more = ("tag_03", "one_03", "other_03")
    assert all(name in done.stdout for name in listed)
    assert not any(name in done.stdout for name in more)
    assert "  and 12 more last values (--all shows them)\n" in done.stdout
    assert done.stdout.count("  and 9 more tags (--all shows them)\n") == 2
    done = run("diff", tmp_path / "one", tmp_path / "other", "--all")
    assert all(name in done.stdout for name in listed + more)
    assert "more" not in done.stdout


def test_a_part_that_has_fewer_rows_leaves_them_to_the_others(tmp_path: Path) -> None:
    for number, own in enumerate(("one", "other")):
        values = [scalar(f"tag_{tag:02}", tag + 1 + number) for tag in range(15)]
        write_segment(tmp_path / own, event(1, *values, scalar(own, 1)))
    done = run("diff", tmp_path / "one", tmp_path / "other")
    assert done.stdout.count("tag_") == 8
    assert "  and 7 more last values (--all shows them)\n" in done.stdout
    assert "\n- one\n+ other\n" in done.stdout


def test_results_are_those_of_the_chosen_tags(tmp_path: Path) -> None:
    for number in range(2):
        tags = ("recommender/ctr/auc/last_9", "recommender/cvr/auc/last_9", "loss")
        values = [scalar(tag, number + 1) for tag in tags]
        auc = evaluation(6, f'{{"auc": {number}}}', 1)
        write_segment(tmp_path / str(number), event(1, *values), auc)

    def results(*options: str) -> set[str]:
        done = run("diff", tmp_path / "0", tmp_path / "1", "--json", *options)
        return {change["name"] for change in json.loads(done.stdout)["facts"].get("results", ())}

    best = {f"best/recommender/{task}/auc/last_9" for task in ("ctr", "cvr")}
    assert results() == {"loss", "auc", "best/auc", *best}
    assert results("--tags", "cvr/auc") == {"best/recommender/cvr/auc/last_9"}
    assert results("--tags", "loss") == {"loss"}
    # An evaluation of the lineage has a tag as a scalar has, too.
    assert results("--tags", "auc") == {"auc", "best/auc", *best}


def test_nothing_differs(three_runs: Path) -> None:
    done = run("diff", three_runs / "run_0", three_runs / "run_0")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Nothing differs")


def test_a_problem_is_printed_once(three_runs: Path, damaged: Path) -> None:
    [lineage] = (three_runs / "run_0").glob("*_lineage")
    lineage.chmod(0o600)
    lineage.write_bytes(lineage.read_bytes()[:-6] + b"x" * 6)
    put(three_runs / "run_0", graph_event())
    done = run("diff", three_runs / "run_0", three_runs / "run_1")
    assert done.stderr.startswith("2 problems:\n")
    for path in (damaged, lineage):
        assert done.stderr.count(f"  {path}, offset ") == 1


def test_json_has_all_that_differs(three_runs: Path) -> None:
    done = run("diff", "--json", three_runs / "run_0", three_runs / "run_2")
    found = json.loads(done.stdout)
    assert (done.returncode, found["same"], found["graph"]) == (1, False, None)
    assert {"name": "learning_rate", "values": [0.1, 0.001]} in found["facts"]["parameters"]


def test_json_has_all_last_values_that_differ(tmp_path: Path) -> None:
    for number in range(2):
        values = [scalar(f"tag_{tag}", number + tag) for tag in range(30)]
        write_segment(tmp_path / str(number), event(7 + number, *values))
    found = json.loads(run("diff", "--json", tmp_path / "0", tmp_path / "1").stdout)
    assert (len(found["values"]), found["same_values"]) == (30, 0)
    change = {"tag": "tag_3", "values": [3.0, 4.0], "steps": [7, 8], "difference": 1.0}
    assert change in found["values"]


def test_the_graph_the_last_values_and_the_tags_of_one_run_are_printed(tmp_path: Path) -> None:
    wider = graph_event()
    for name in ("9", "10"):
        number = int(name) - 8
        wider.graph_def.node.add(name=name, full_name=f"Default/net/ReLU-op{number}")
    late = [event(number, scalar("late", number / 2)) for number in (4, 1234)]
    put(tmp_path / "1", graph_event(), late[0], *losses([21], tag="old"))
    put(tmp_path / "2", wider, late[1], *losses([21], tag="new"))
    done = run("diff", tmp_path / "1", tmp_path / "2", "--wide")
    lines = [line.split() for line in done.stdout.splitlines()]
    assert (done.returncode, done.stderr) == (1, "")
    assert "graph: 7 nodes, 9 nodes" in done.stdout
    assert ["+", "Default/net/ReLU", "×2"] in lines
    assert ["late", "2", "617", "615", "4", "1,234"] in lines
    assert ["-", "old"] in lines
    assert ["+", "new"] in lines


def test_a_tree_of_runs_is_refused_with_their_names(three_runs: Path) -> None:
    done = run("diff", three_runs / "run_0", three_runs)
    assert done.returncode == 2
    assert "the record directory of one training; there are 3" in flat(done.stderr)


def test_a_place_without_records_is_a_mistake(three_runs: Path, tmp_path: Path) -> None:
    assert run("diff", three_runs / "run_0", tmp_path / "nowhere").returncode == 2
