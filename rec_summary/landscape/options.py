"""Which landscapes are computed, and how."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from rec_summary.errors import three_part
from rec_summary.landscape.files import FORMATS
from rec_summary.landscape.point import Metadata

_SIZES: Final = range(3, 257)


@dataclass(frozen=True)
class Options:
    """How landscapes are computed.

    Attributes:
        seed: Where the randomness of planes comes from.
        parameters: Which parameters move: `all`; `dense`, without embedding tables;
            `touched`, of embedding tables only rows that the checkpoints do not have in
            common; or a regular expression that is found in their names.
        engine: Where points are evaluated: `loky`, `sequential`, `dask://HOST:PORT`, `ray` or
            `spark`.
        jobs: How many workers; -1 for one on each core.
        device_ids: The devices that workers share among themselves.
        hessian: Whether there shall be a landscape along the first two eigenvectors of the
            Hessian at the result, too. The model must know its gradient.
        files: What else to write, besides the record: `npz`, `vtk`; to `landscape` in the
            directory of the records.
    """

    seed: int = 1
    parameters: str = "all"
    engine: str = "loky"
    jobs: int = -1
    device_ids: tuple[int, ...] = ()
    hessian: bool = False
    files: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Checks.

        Raises:
            ValueError: There is no such format.
        """
        for form in self.files:
            if form not in FORMATS:
                expected = f"one of {', '.join(FORMATS)}"
                raise ValueError(three_part("a format of files", form, expected))


def wanted(metadata: Metadata, options: Options) -> Iterator[tuple[tuple[int, ...], str]]:
    """Yields the checkpoints and the method of each landscape, in MindSpore's order."""
    if metadata.train:
        for group in metadata.groups:
            yield group, "PCA"
    if not metadata.groups:
        return
    # The other checkpoints tell which rows were touched; the plane goes through the last.
    last = metadata.groups[-1]
    if metadata.result:
        yield last, "Random"
    if options.hessian:
        yield last, "Hessian"


def tag_of(numbers: Sequence[int], method: str) -> str:
    """Returns what a landscape is called: by its checkpoints, as MindSpore does it."""
    if method == "PCA":
        return f"landscape_{[numbers[0], numbers[-1]]}"
    return f"landscape_{[numbers[-1]]}" + ("_hessian" if method == "Hessian" else "")


def changed(metadata: Metadata, changes: Mapping[str, Any]) -> Metadata:
    """Returns the metadata with what is to be different, checked."""
    known = ("landscape_size", "unit", "create_landscape", "num_samples", "intervals")
    for key in changes:
        if key not in known:
            expected = f"one of {', '.join(known)}"
            raise ValueError(three_part("a key of collect_landscape", key, expected))
    size = changes.get("landscape_size", metadata.landscape_size)
    if isinstance(size, bool) or not isinstance(size, int) or size not in _SIZES:
        raise ValueError(three_part("landscape_size", size, "an int from 3 to 256"))
    samples = changes.get("num_samples", metadata.num_samples)
    if isinstance(samples, bool) or not isinstance(samples, int) or samples < 1:
        raise ValueError(three_part("num_samples", samples, "an int of at least 1"))
    create = changes.get("create_landscape", {})
    groups = changes.get("intervals", metadata.groups)
    return replace(
        metadata,
        landscape_size=size,
        num_samples=samples,
        groups=tuple(tuple(group) for group in groups),
        train=bool(create.get("train", metadata.train)),
        result=bool(create.get("result", metadata.result)),
    )
