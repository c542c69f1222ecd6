"""The options of a computation, and the landscapes that it computes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from rec_summary.checks import check_choice
from rec_summary.landscape.files import FORMATS
from rec_summary.landscape.metadata import Metadata

PCA: Final = "PCA"
RANDOM: Final = "Random"
HESSIAN: Final = "Hessian"


@dataclass(frozen=True)
class Options:
    """Options of a computation.

    Attributes:
        seed: The seed of random planes.
        parameters: The parameters that move: `all`; `dense`, without embedding tables; `touched`,
            which moves only the rows of embedding tables that differ between checkpoints; or a
            regular expression that is searched in their names.
        engine: The engine that evaluates points: `loky`, `sequential` or `dask://HOST:PORT`.
        jobs: The number of workers; -1 for one on each core.
        device_ids: The devices that the workers share.
        hessian: Whether to also compute the landscape along the first two eigenvectors of the
            Hessian at the result. The model must have a gradient.
        files: The formats to also write to the directory `landscape` of the records: `npz`, `vtk`.
    """

    seed: int = 1
    parameters: str = "all"
    engine: str = "loky"
    jobs: int = -1
    device_ids: tuple[int, ...] = ()
    hessian: bool = False
    files: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Checks the formats.

        Raises:
            TypeError, ValueError: A format is unknown.
        """
        for form in self.files:
            check_choice("a format of files", form, FORMATS)


@dataclass(frozen=True)
class PlannedLandscape:
    """One of the landscapes of a run.

    Attributes:
        numbers: The numbers of its checkpoints; the plane goes through the last one.
        method: The method that chooses the plane: `PCA`, `RANDOM` or `HESSIAN`.
    """

    numbers: tuple[int, ...]
    method: str

    @property
    def tag(self) -> str:
        """The tag, made of the checkpoints as MindSpore does."""
        if self.method == PCA:
            return f"landscape_{[self.numbers[0], self.numbers[-1]]}"
        return f"landscape_{[self.numbers[-1]]}" + ("_hessian" if self.method == HESSIAN else "")


def planned(metadata: Metadata, options: Options) -> Iterator[PlannedLandscape]:
    """Yields the landscapes to compute, in MindSpore's order."""
    if metadata.train:
        for group in metadata.intervals:
            yield PlannedLandscape(group, PCA)
    if not metadata.intervals:
        return
    # All checkpoints of the group, because they show which rows of tables were touched.
    last = metadata.intervals[-1]
    if metadata.result:
        yield PlannedLandscape(last, RANDOM)
    if options.hessian:
        yield PlannedLandscape(last, HESSIAN)
