"""Engines by their names."""

from __future__ import annotations

from typing import Any

import pytest

from rec_summary.engines.engine import Engine, parse_engine


@pytest.mark.parametrize(
    ("text", "engine"),
    [
        ("loky", Engine("loky")),
        ("sequential", Engine("sequential")),
        ("dask", Engine("dask")),
        ("dask://host:8786", Engine("dask", "host:8786")),
        ("dask://[::1]:8786", Engine("dask", "[::1]:8786")),
    ],
)
def test_the_names_of_engines(text: str, engine: Engine) -> None:
    assert parse_engine(text) == engine
    assert str(engine) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "slurm",
        "loky://host:1",
        "dask://",
        "dask://host",
        "dask://:1",
        "dask://a:b",
        "ray",
        "spark://host:7077",
        "dask://a:1/",
    ],
)
def test_names_of_no_engine(text: str) -> None:
    with pytest.raises(
        ValueError, match=r"the engine is invalid.*loky, sequential or dask://HOST:PORT"
    ):
        parse_engine(text)


@pytest.mark.parametrize("jobs", [0, -2, True, 1.5])
def test_numbers_of_jobs_that_are_none(jobs: Any) -> None:
    with pytest.raises(ValueError, match="jobs is invalid"):
        parse_engine("loky", jobs)
