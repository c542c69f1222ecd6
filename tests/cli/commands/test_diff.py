"""`rec-summary diff`, as users meet it."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.command import flat, run
from tests.support.corpus import graph_event, losses, put
from tests.support.record_dirs import event, scalar, write_segment


def test_what_differs_between_two_runs(three_runs: Path) -> None:
    done = run("diff", three_runs / "run_0", three_runs / "run_1")
    assert done.returncode == 1
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["learning_rate", "0.1", "0.01"] in lines
    assert ["auc", "0.6", "0.7"] in lines
    assert "1 curve the same in both" in done.stdout


def test_the_first_fifty_of_many_curves_are_listed(tmp_path: Path) -> None:
    for number, run_ in enumerate(("one", "other")):
        values = (scalar(f"tag_{tag:02}", tag + number) for tag in range(60))
        write_segment(tmp_path / run_, event(1, *values))
    done = run("diff", tmp_path / "one", tmp_path / "other")
    assert "tag_49" in done.stdout
    assert "tag_50" not in done.stdout
    assert "  and 10 more curves (--json lists all)\n" in done.stdout


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


def test_the_graph_the_curves_and_the_tags_of_one_run_are_printed(tmp_path: Path) -> None:
    wider = graph_event()
    for name in ("9", "10"):
        number = int(name) - 8
        wider.graph_def.node.add(name=name, full_name=f"Default/net/ReLU-op{number}")
    apart = losses(range(1, 5), tag="late"), losses(range(31, 35), tag="late")
    put(tmp_path / "1", graph_event(), *losses(range(1, 21)), *apart[0], *losses([21], tag="old"))
    first, second = losses(range(1, 11)), losses(range(11, 21), salt=3)
    put(tmp_path / "2", wider, *first, *second, *apart[1], *losses([21], tag="new"))
    done = run("diff", tmp_path / "1", tmp_path / "2", "--wide")
    lines = [line.split() for line in done.stdout.splitlines()]
    assert (done.returncode, done.stderr) == (1, "")
    assert "graph: 7 nodes, 9 nodes" in done.stdout
    assert ["+", "Default/net/ReLU", "×2"] in lines
    assert ["late", "no", "common", "step"] in lines
    assert ["loss", "11", "11"] in [line[:3] for line in lines]
    assert ["-", "old"] in lines
    assert ["+", "new"] in lines


def test_a_tree_of_runs_is_refused_with_their_names(three_runs: Path) -> None:
    done = run("diff", three_runs / "run_0", three_runs)
    assert done.returncode == 2
    assert "the record directory of one training; there are 3" in flat(done.stderr)


def test_a_place_without_records_is_a_mistake(three_runs: Path, tmp_path: Path) -> None:
    assert run("diff", three_runs / "run_0", tmp_path / "nowhere").returncode == 2
