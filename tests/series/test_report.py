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


def test_a_problem_that_is_met_again_counts_once() -> None:
    report, part = Report(), Report()
    for place in (4, 4, 8):
        part.problem("file", place, "damaged")
    report.add(part)
    for text in ("damaged", "another thing"):
        report.problem("file", 8, text)
    assert [(each.offset, each.text) for each in report.problems] == [
        (4, "damaged"),
        (8, "damaged"),
        (8, "another thing"),
    ]
    assert report.problem_count == 3
