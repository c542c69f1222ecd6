"""The parts of `tools/bench` that turn measurements into results. No test here is timed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rec_summary._pb.summary_pb2 import Event
from tests.support.record_dirs import summary_name, write_payloads
from tools.benchmarks import report, synthetic_records
from tools.benchmarks.contest import Contestant, MeasurementFailed, Settings, alternate, measure
from tools.benchmarks.reading import event_files, exports, readers
from tools.benchmarks.results import Row, Target, cost, merge, rows_from, speed
from tools.benchmarks.writing import landscape, soak


def test_a_speed_is_the_peers_time_by_ours_round_by_round() -> None:
    row = speed("x", [1.0, 2.0, 1.0], [10.0, 10.0, 12.0], "peer", 10)
    assert list(row.ratio) == [10.0, 5.0, 12.0]
    assert row.met  # the median


@pytest.mark.parametrize(
    ("ours", "peers", "most", "ratio", "met"),
    [
        ([1.0, 3.0, 1.0], [10.0, 10.0, 10.0], 0.1, [0.1, 0.3, 0.1], True),
        ([2.0], [10.0], 0.1, [0.2], False),
        ([1.0, 1.0, 1.0], [10.0, -0.1, 4.0], 0.2, [0.1, 0.25], True),  # one cost nothing
        ([1.0], [0.0], 0.2, [], None),
    ],
)
def test_a_cost_is_our_part_of_the_peers(
    ours: list[float], peers: list[float], most: float, ratio: list[float], met: bool | None
) -> None:
    row = cost("x", "ms", ours, peers, "peer", most)
    assert list(row.ratio) == ratio
    assert row.met is met
    assert row.rounds_met == (sum(each <= most for each in ratio), len(ratio))


def test_a_comparison_has_a_column_for_each_package() -> None:
    ours, aim, wandb = [1.0, 3.0, 2.0], [4.0, 5.0, 6.0], [7.0, 7.0, 7.0]
    rows = [Row("a call", "µs", ours, peer, name) for name, peer in (("Aim", aim), ("W&B", wandb))]
    rows += [
        Row("on disk", "kB", [0.0], [peer], name) for name, peer in (("Aim", 8.0), ("W&B", 9.0))
    ]
    assert report.side_by_side(rows).splitlines() == [
        "| | rec_summary | Aim | W&B |",
        "|---|---|---|---|",
        "| a call (µs) | 2.00 | 5.00 | 7.00 |",
        "| on disk (kB) | 0 | 8.00 | 9.00 |",
    ]


@pytest.mark.parametrize(("of", "met"), [("ours", True), ("worst", False)])
def test_a_target_may_be_for_the_median_or_for_the_worst(of, met: bool) -> None:
    assert Row("x", "s", [0.1, 0.2, 5.0], target=Target(of, "<", 1)).met is met


def test_results_of_other_benchmarks_stay_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "performance.json"
    one = [speed("x", [1.0], [3.0], "peer", 2)]
    merge(path, "one", "how", one, {})
    merge(path, "two", "how", [Row("y", "s", [1.0])], {})
    stored = merge(path, "two", "how", [Row("y", "s", [2.0])], {})
    assert rows_from(stored["one"]["rows"]) == one
    assert [row.ours for row in rows_from(stored["two"]["rows"])] == [[2.0]]
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_the_page_shows_every_row_with_its_target(tmp_path: Path) -> None:
    machine = {"processor": "P", "cores": 2, "memory_gb": 1, "load_before": 0, "system": "S"}
    machine |= {"python": "3", "versions": {}, "commit": "c"}
    rows = [speed("quick", [1.0], [30.0], "another", 10), Row("slow", "s", [2.0, 4.0])]
    rows.append(cost("dear", "ms", [2.0], [4.0], "another", 0.1))
    merge(tmp_path / "p.json", "alone", "Once.", [Row("many: x", "s", [2.0])], machine)
    stored = merge(tmp_path / "p.json", "name", "How it is done.", rows, machine)
    page = tmp_path / "p.md"
    page.write_text(f"# Title\n\n{report.BEGIN}\nold\n{report.END}\n\n## Findings\n")
    stored = merge(tmp_path / "p.json", "moved", "As others.", rows, machine)
    elsewhere = {"moved": "See another page."}
    report.write_page(page, stored, ["name", "alone", "moved"], tmp_path, elsewhere)
    lines = page.read_text().splitlines()
    assert (lines[0], lines[-1], "old" in lines) == ("# Title", "## Findings", False)
    # Of one round there is no spread. The only peer is in the heading, of ratios there are two.
    assert "| what | ours | another | ratio | spread | target | met? |" in lines
    assert "| quick | 1.00 s | 30.0 s | 30.0 × as fast |  | >= 10.0 × | yes |" in lines
    assert "| slow | 3.00 s |  |  | 2.00 to 4.00 s |  |  |" in lines
    assert any(line.startswith("| dear |") and line.endswith("| **no** |") for line in lines)
    columns = lines[lines.index("## alone") :]
    assert columns[4:9] == ["**many**", "", "| what | ours |", "|---|---|", "| x | 2.00 s |"]
    moved = lines[lines.index("## moved") :]
    assert moved[2:5] == ["As others.", "", "See another page."]
    assert "P, 2 cores, 1 GB, S, Python 3, : name, alone, moved." in lines


def test_every_second_round_goes_backwards_in_fresh_processes() -> None:
    progress: list[str] = []
    command = {"command": ["-c", "pass"]}
    contestants = [Contestant(name, readers.run, command) for name in ("a", "b")]
    rounds = alternate(contestants, Settings(2, quick=True, say=progress.append))
    assert [text[-1] for text in progress] == ["a", "b", "b", "a"]
    assert [len(each) for each in rounds.values()] == [2, 2]
    assert all(one["seconds"] > 0 for each in rounds.values() for one in each)


def test_a_failing_measurement_shows_what_the_process_said() -> None:
    contestant = Contestant("x", event_files.floor, {"records": "/nowhere", "count": 1})
    with pytest.raises(MeasurementFailed, match="ValueError"):
        measure(contestant)


def test_a_contestant_that_writes_too_little_is_found_out(tmp_path: Path) -> None:
    synthetic_records.write_scalars(tmp_path / "records", 10)
    arguments = {"records": str(tmp_path / "records"), "work": str(tmp_path)}
    assert event_files.floor(**arguments, count=10)["seconds"] > 0
    with pytest.raises(RuntimeError, match="10 events were written, not 11"):
        event_files.floor(**arguments, count=11)


def test_both_sides_write_the_same_scalars(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    synthetic_records.write_scalars(tmp_path / "records", 40)
    for name, function in (("ours", event_files.ours), ("floor", event_files.floor)):
        (tmp_path / name).mkdir()
        function(str(tmp_path / name), str(tmp_path / "records"), 40)
    shown = []
    for folder in (tmp_path / "ours" / "logs", tmp_path / "floor"):
        [path] = folder.rglob("*tfevents*")
        accumulator = EventAccumulator(str(path)).Reload()
        shown.append({tag: accumulator.Scalars(tag) for tag in accumulator.Tags()["scalars"]})
    assert shown[0] == shown[1]
    values = sum(len(series) for series in shown[0].values())
    assert values == 40


def test_images_have_the_size_that_the_benchmark_speaks_of() -> None:
    assert all(95_000 < len(image.encoded_image) < 105_000 for image in synthetic_records.images())


def test_a_benchmark_gives_rows_with_all_rounds() -> None:
    setting, [row] = exports.export_images(Settings(1, quick=True, say=lambda text: None))
    assert "100 events" in setting
    assert len(row.ours) == len(row.peer) == len(row.ratio) == 3


@pytest.mark.mindspore
@pytest.mark.parametrize("kind", ["first", "reservoir"])
def test_a_batch_for_the_replay_buffer_is_measured(tmp_path: Path, kind: str) -> None:
    pytest.importorskip("mindspore")
    assert landscape.replay(str(tmp_path), kind, 1)["median"] > 0


def test_a_year_is_made_of_events() -> None:
    events = [Event.FromString(each) for each in soak.payloads(1_001, 1000.0)]
    losses = np.concatenate(list(soak.losses(1_001)))
    assert [each.step for each in events] == list(range(10, 10_011, 10))
    assert [each.summary.value[0].scalar_value for each in events] == losses.tolist()
    assert [each.wall_time for each in events] == sorted(each.wall_time for each in events)
    kinds = [{value.WhichOneof("value") for value in each.summary.value} for each in events]
    assert kinds.count({"scalar_value", "histogram"}) == 2


@pytest.mark.parametrize(
    ("staying", "moved"),
    [
        ([0, 1, 2, 3, 4, 5, 6, 7], 0),
        ([0, 1, 2, 4, 5, 6, 7], 1),  # the least of a column is that of its neighbour
        ([0, 1, 2, 3, 4, 5, 6], 2),  # a peak is gone
    ],
)
def test_by_how_much_a_picture_is_moved(staying: list[int], moved: int) -> None:
    values = np.array([5, 1, 4, 2, 1, 3, 3, 9], np.float32)
    full = soak.extents(np.arange(8), values, 8, 4)
    assert [each.tolist() for each in full] == [[1, 2, 1, 3], [5, 4, 3, 9]]
    indices = np.array(staying)
    assert soak.columns_moved(full, soak.extents(indices, values[indices], 8, 4)) == moved
    more = soak.extents(indices, values[indices] + 10, 8, 4)
    assert soak.columns_moved(full, more) == 2


def test_a_year_is_not_compared_by_one_column(tmp_path: Path) -> None:
    folder = tmp_path / "year"
    path = folder / f"events.compacted-20-0001.out.{summary_name(10).split('.out.')[1]}"
    head = Event(wall_time=1.0, version="MindSpore.Event:1")
    payloads = list(soak.payloads(1_000, 1000.0))
    head.compaction.bucket_steps = 16
    write_payloads(path, head.SerializeToString(), *payloads)
    assert soak.check("", str(folder), 1_000)["columns"] == 62  # of 1,000 steps, a tenth
    head.compaction.bucket_steps = 512
    write_payloads(path, head.SerializeToString(), *payloads)
    with pytest.raises(RuntimeError, match="buckets of 512 steps in tenth 0"):
        soak.check("", str(folder), 1_000)


def test_kills_are_spread_over_the_second_of_a_flush() -> None:
    """Ours is flushed each second, so a kill after 10 s would lose almost nothing each time."""
    pytest.importorskip("mindspore")
    from tools.benchmarks.comparison import compare

    assert compare.kill_times(10) == pytest.approx([10 + 1 / 6, 10.5, 10 + 5 / 6])
