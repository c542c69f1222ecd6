"""The data of the examples: clicks on films, in batches, endless or cut to a length.

Synthetic by default; `--data movielens` takes MovieLens 100K, which the demo fetches. Programs
without MindSpore read `batches`.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))  # the demo has readers for both kinds of data

from click_demo import sources  # noqa: E402
from click_demo.features import CROSS_BUCKETS, Batch, Vocabulary  # noqa: E402
from click_demo.stream import ClickStream  # noqa: E402

__all__ = ["CROSS_BUCKETS", "ROOT", "Batch", "Clicks", "Vocabulary", "arguments", "stop_after"]


def arguments(about: str | None, records: str, steps: int) -> argparse.Namespace:
    """Reads what all examples take: --records, --steps, --data."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--records", default=records, help="the record directory")
    parser.add_argument("--steps", type=int, default=steps, help="training steps")
    parser.add_argument("--data", choices=("synthetic", "movielens"), default="synthetic")
    return parser.parse_args()


class Clicks:
    """A stream of clicks.

    Attributes:
        vocabulary: How many users, films, genres and occupations there are.
    """

    def __init__(self, data: str = "synthetic", batch_size: int = 64, seed: int = 1) -> None:
        """Opens the source; `seed` is that of the synthetic one."""
        source = sources.choose(data, ROOT / ".cache" / "demo", seed)
        self.vocabulary: Vocabulary = source.vocabulary
        self._stream = ClickStream(source.chunks, source.vocabulary, batch_size)

    def endless(self, skip: int = 0) -> Any:
        """Returns a data set of MindSpore without an end, after the first `skip` batches."""
        return self._dataset(skip, None)

    def some(self, batches: int, skip: int = 0) -> Any:
        """Returns a data set of MindSpore of `batches` batches, after the first `skip`."""
        return self._dataset(skip, skip + batches)

    def batches(self, count: int) -> Iterator[Batch]:
        """Yields the first batches as numpy arrays."""
        return itertools.islice(iter(self._stream), count)

    def _dataset(self, start: int, stop: int | None) -> Any:
        from mindspore.dataset import GeneratorDataset

        def rows() -> Iterator[Batch]:
            return itertools.islice(iter(self._stream), start, stop)

        return GeneratorDataset(
            rows,
            column_names=list(Batch._fields),
            shuffle=False,
            num_parallel_workers=1,
            python_multiprocessing=False,
        )


def stop_after(steps: int) -> Any:
    """Returns a callback of MindSpore that ends a training on an endless stream."""
    from mindspore.train import LambdaCallback, RunContext

    def end(run_context: RunContext) -> None:
        if run_context.original_args().cur_step_num >= steps:
            run_context.request_stop()

    return LambdaCallback(on_train_step_end=end)
