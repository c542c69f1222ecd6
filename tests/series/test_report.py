from __future__ import annotations

from rec_summary.series.report import Problem, Report


def test_reports_of_many_runs_are_added_and_only_problems_and_notes_are_bounded() -> None:
    total = Report()
    for number in range(1500):
        part = Report(runs=[f"{number}"], replaced=[f"{number}"], files=1)
        part.records["summary"] += 2
        part.note(f"note {number}")
        part.problem("file", number, "damaged")
        total.add(part)
    assert total.runs == total.replaced == list(map(str, range(1500)))
    assert (total.files, total.records, total.problem_count) == (1500, {"summary": 3000}, 1500)
    assert total.notes == [f"note {number}" for number in range(1000)]
    assert total.problems == [Problem("file", number, "damaged") for number in range(1000)]


def test_a_problem_counts_each_time_but_once_where_the_same_files_are_read_again() -> None:
    total, again = Report(files=1), Report(files=1)
    for place in (4, 4, 8):
        total.problem("file", place, "damaged")
    assert (len(total.problems), total.problem_count) == (3, 3)
    for place, text in ((8, "damaged"), (8, "another thing"), (8, "another thing")):
        again.problem("file", place, text)
    total.add_again(again)
    assert total.problems[3:] == [Problem("file", 8, "another thing")]
    assert (total.problem_count, total.files) == (4, 2)
    assert again.problem_count == 3
