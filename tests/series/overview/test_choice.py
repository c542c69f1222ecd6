from __future__ import annotations

import os
from pathlib import Path

import pytest

from rec_summary import load
from rec_summary._pb.lineage_pb2 import EvaluationLineage
from rec_summary.errors import ArgumentError
from rec_summary.records.reading.runs import find_runs
from rec_summary.series.overview.choice import check_ranks, check_tags, chosen_runs
from tests.support import command
from tests.support.record_dirs import event, lineage, scalar, write_segment


@pytest.fixture
def source(tmp_path: Path) -> Path:
    for name in ("deepfm", "dcn"):
        write_segment(tmp_path / name, event(1, scalar("loss/auto", 1), scalar("auc", 1)))
    return tmp_path


def test_a_choice_that_leaves_something(source: Path) -> None:
    runs = find_runs(source)
    assert chosen_runs(runs, None) == runs
    assert [run.name for run in chosen_runs(runs, "d*m")] == ["deepfm"]
    write_segment(source / "lr=0.1 [seed 1]", event(1, scalar("loss", 1)))
    [bracketed] = chosen_runs(find_runs(source), "lr=0.1 [seed 1]")
    assert bracketed.name == "lr=0.1 [seed 1]"
    check_tags(runs, None)
    check_tags(runs, "lo..")


@pytest.mark.parametrize("pattern", ["loss*", "auc"])
def test_a_pattern_of_runs_that_matches_tags_says_so(source: Path, pattern: str) -> None:
    with pytest.raises(ArgumentError, match=r"there are: dcn, deepfm.*Tags match.*Use --tags"):
        chosen_runs(find_runs(source), pattern)


def test_ranks_that_no_run_has(source: Path) -> None:
    write_segment(source / "dcn", event(1, scalar("loss/auto", 1)), rank=12)
    runs = find_runs(source)
    for ranks in (None, "all", "0", "3,8-12"):
        check_ranks(runs, ranks)
    check_ranks([], "3")
    with pytest.raises(ArgumentError, match=r"'1-11,13'.*there are: 0, 12.$"):
        check_ranks(runs, "1-11,13")
    for arguments in (["tail", "--once"], ["inspect"], ["export"]):
        to = [str(source / "to")] * (arguments == ["export"])
        done = command.run(*arguments, source, *to, "--ranks", "7")
        assert done.returncode != 0
        assert "there are: 0, 12" in command.flat(done.stderr)
    with pytest.raises(ArgumentError, match="there are: 0, 12"):
        load(source, ranks="7")


def test_a_pattern_that_matches_nothing(source: Path) -> None:
    with pytest.raises(ArgumentError, match=r"there are: dcn, deepfm.$"):
        chosen_runs(find_runs(source), "nothing")
    with pytest.raises(ArgumentError, match=r"there are: auc, loss/auto.$"):
        check_tags(find_runs(source), "nothing")


def test_the_names_that_are_like_the_pattern_come_first(tmp_path: Path) -> None:
    for name in ("a", "b", "c", "d", "e", "two-heads"):
        write_segment(tmp_path / name, event(1, *(scalar(f"{tag}/auc", 1) for tag in "uvwxyz")))
    write_segment(tmp_path / "a", event(2, scalar("z/click/auc", 1)))
    runs = find_runs(tmp_path)
    with pytest.raises(ArgumentError, match=r"there are: two-heads, a, b, c, d and 1 more.$"):
        chosen_runs(runs, "twoheads")
    with pytest.raises(ArgumentError, match=r"there are: z/click/auc, .* and 2 more.$"):
        check_tags(runs, "z/klick/auc")


def test_of_very_many_names_the_first_are_compared(tmp_path: Path) -> None:
    tags = [f"{number:05}" for number in range(20_000)]
    write_segment(tmp_path, event(1, *(scalar(tag, 1) for tag in tags)))
    runs = find_runs(tmp_path)
    with pytest.raises(ArgumentError, match=r"there are: 09999, .* and 19,995 more\.$"):
        check_tags(runs, "_09999")
    with pytest.raises(ArgumentError, match=r"there are: (?!.*10001).* and 19,995 more\.$"):
        check_tags(runs, "_10001")


def test_brackets_in_names_of_runs(source: Path) -> None:
    write_segment(source / "feed[v2]" / "a", event(1, scalar("loss", 1)))
    runs = find_runs(source)
    with pytest.raises(ArgumentError, match=r"`\[` begins a set .* 'feed\[\[\]v2\]/\*'\.$"):
        chosen_runs(runs, "feed[v2]/*")
    assert [run.name for run in chosen_runs(runs, "feed[[]v2]/*")] == ["feed[v2]/a"]


@pytest.mark.parametrize("pattern", ["^d", r"deep\w+", ".*fm$"])
def test_a_regular_expression_for_runs_says_so(source: Path, pattern: str) -> None:
    with pytest.raises(ArgumentError, match=r"As a regular expression it finds runs: .*deepfm"):
        chosen_runs(find_runs(source), pattern)


def test_a_shell_pattern_for_tags_says_so(source: Path) -> None:
    with pytest.raises(ArgumentError, match=r"As a shell pattern it matches tags: loss/auto"):
        check_tags(find_runs(source), "[l]*ss/*o")
    with pytest.raises(ArgumentError, match=r"`\.\*` stands for any text, `\*` does not"):
        check_tags(find_runs(source), "*loss*")


def test_the_metrics_of_evaluations_count_where_they_are_shown(source: Path) -> None:
    # A curve is in no event file.
    evaluation = EvaluationLineage(metric='{"gauc": 0.7, "roc": [0, 1]}')
    write_segment(source / "dcn", lineage(evaluation_lineage=evaluation))
    runs = find_runs(source)
    check_tags(runs, "gauc", evaluated=True)
    with pytest.raises(ArgumentError, match=r"there are: auc, loss/auto.$"):
        check_tags(runs, "gauc")
    with pytest.raises(ArgumentError, match=r"there are: auc, loss/auto, gauc.$"):
        check_tags(runs, "roc", evaluated=True)


@pytest.mark.parametrize("pattern", ["deep", "d*"])
def test_a_pattern_of_tags_that_matches_runs_says_so(source: Path, pattern: str) -> None:
    if pattern == "d*":  # finds nothing in every tag
        check_tags(find_runs(source), pattern)
        return
    with pytest.raises(ArgumentError, match=r"Runs match it, not tags: deepfm. Use --runs"):
        check_tags(find_runs(source), pattern)


def test_a_name_that_is_not_utf_8_is_chosen_as_it_is_shown(source: Path) -> None:
    write_segment(source / os.fsdecode(b"caf\xe9"), event(1, scalar("loss", 1)))
    shown = load(source).lineage().index[0]
    assert shown.startswith("caf")
    assert load(source, runs=shown).lineage().index.tolist() == [shown]
