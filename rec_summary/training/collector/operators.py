"""What summary operators inside a network have put out.

MindSpore keeps their values in two places of its own: in PyNative mode a list that grows
until somebody empties it, in graph mode a dictionary with the latest value of each tag.
Emptying them is all or nothing for the whole process, so it is done here, in one place,
and every collector and summary record gets a copy of its own: none is lost to another, and
none is counted twice.

MindSpore's own way of emptying the list checks its entries first, and throws all of them
away when it meets a bad one. Here every entry stands for itself.

Source: `mindspore.ops.ScalarSummary`, `ImageSummary`, `TensorSummary`, `HistogramSummary`.
"""

from __future__ import annotations

import contextlib
import re
import threading
import weakref
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from mindspore import Parameter
from mindspore.ops.operations import debug_ops as _mindspore_operators
from mindspore.train.summary import summary_record as _mindspore_records

from rec_summary.errors import three_part, verbatim
from rec_summary.records.failures import Troubles
from rec_summary.training.collector.step_view import as_array, copy_of
from rec_summary.values.image import MAX_TILES, is_image
from rec_summary.values.scalar import to_number
from rec_summary.values.summary import (
    HistogramValue,
    ImageValue,
    ScalarValue,
    SummaryValue,
    TensorValue,
)

_NAME: Final = re.compile(r"(?P<tag>.+)\[:(?P<kind>.+)\]", re.DOTALL)


class Operator(NamedTuple):
    """A summary operator's value is known by its kind and its tag.

    Attributes:
        kind: `scalar`, `image`, `tensor` or `histogram`.
        tag: The tag that the network gave it.
    """

    kind: str
    tag: str


class Mailbox:
    """Gets a copy of every value from now on, until it is closed.

    Only the latest value of a tag is kept: a step that nobody takes is superseded by the
    next one, and memory is bounded by the number of tags. MindSpore's list is emptied
    whenever a mailbox of the process is looked into, so look often in PyNative mode.
    """

    def __init__(self, troubles: Troubles | None = None) -> None:
        """Begins empty: what operators put out before is not this owner's.

        Args:
            troubles: Told of each value that has no usable tag.
        """
        self._values: dict[Operator, Any] = {}
        self._troubles = troubles
        self._paused = False
        with _lock:
            _deliver()  # to those who were here before
            _mailboxes.add(self)

    def take(self) -> dict[Operator, Any]:
        """Returns the values since the last call, as the network gave them, and forgets them.

        They are MindSpore Tensors, unchecked: see `snapshot`.
        """
        if not (self._values or _is_waiting()):  # as at nearly every step
            return {}
        with _lock:
            _deliver()
            values, self._values = self._values, {}
        return values

    def pause(self) -> None:
        """Gets nothing from now on, such as during an evaluation; keeps what it has."""
        with _lock:
            _deliver()
            self._paused = True

    def resume(self) -> None:
        """Gets values again, from now on."""
        with _lock:
            _deliver()
            self._paused = False

    def close(self) -> None:
        """Gets nothing any more."""
        with _lock:
            _deliver()  # to the others
            _mailboxes.discard(self)
            self._values = {}

    def _receive(self, values: dict[Operator, Any], errors: list[str]) -> None:
        if self._paused:
            return
        self._values.update(values)
        if self._troubles is not None:
            for error in errors:
                self._troubles.report("summary operator", error)


_lock = threading.Lock()
_mailboxes: weakref.WeakSet[Mailbox] = weakref.WeakSet()


def deliver() -> None:
    """Hands what operators have put out to every mailbox that is not paused."""
    with _lock:
        _deliver()


def discard() -> None:
    """Throws away what operators have put out and nobody has got yet, for everybody.

    An evaluation runs the same network; its values are not those of a training step.
    """
    if _is_waiting():
        with _lock:
            _take_all()


def snapshot(kind: str, tag: str, value: Any) -> SummaryValue:
    """Returns a value of an operator, or of a user, as a snapshot that owns its memory.

    Args:
        kind: `scalar`, `image`, `tensor` or `histogram`.
        tag: Its tag.
        value: A Tensor, an array, a number, or a list of such.

    Raises:
        TypeError: It does not hold real numbers.
        ValueError: A scalar is empty, an image has not the shape of one, or there is no
            such kind.
    """
    build = _SNAPSHOTS.get(kind)
    if build is None:
        raise ValueError(three_part("a kind of summary", kind, f"one of {', '.join(_SNAPSHOTS)}"))
    what = f"{kind} {tag!r}"
    array = own_array(value, what, MAX_TILES if kind == "image" else None)
    if kind == "image" and not is_image(array):
        expected = "a non-empty array of shape [N, C, H, W] or [N, H, W, C] with C of 1 or 3"
        raise ValueError(three_part(what, verbatim(f"shape {array.shape}"), expected))
    return build(tag, array)


def own_array(value: Any, what: str, rows: int | None = None) -> npt.NDArray[Any]:
    """Returns a copy of what can be recorded: real numbers of a type that numpy knows.

    Args:
        value: A Tensor, an array, a number, or a list of such.
        what: What it is, for errors.
        rows: How many rows are wanted at most; None for all.

    Raises:
        TypeError: It does not hold real numbers.
        ValueError: It is a list of unequal rows.
    """
    if rows is None and isinstance(value, Parameter):
        copy = copy_of(value)
        if copy is not None:
            return copy
    array = _to_array(value, what)
    if rows is not None and array.ndim:
        array = array[:rows]
    # On CPU, a Tensor's array is a view of memory that the next step may overwrite.
    array = np.array(array, copy=True)
    if array.dtype.kind == "V" and array.dtype.names is None:  # bfloat16 and the like
        with contextlib.suppress(TypeError, ValueError):
            array = array.astype(np.float32)
    elif array.dtype.kind == "f" and array.dtype.itemsize > 8:
        array = array.astype(np.float64)
    if array.dtype.kind not in "fiub":
        raise TypeError(three_part(what, verbatim(f"elements of {array.dtype}"), "real numbers"))
    return array


def _to_array(value: Any, what: str) -> npt.NDArray[Any]:
    if not isinstance(value, (list, tuple)):
        return as_array(value, what)
    if any(isinstance(item, (list, tuple)) or hasattr(item, "asnumpy") for item in value):
        value = [_to_array(item, what) for item in value]
    try:
        return np.asarray(value)
    except ValueError as error:
        raise ValueError(three_part(what, value, "rows of the same length")) from error


_SNAPSHOTS: Final[dict[str, Callable[[str, npt.NDArray[Any]], SummaryValue]]] = {
    "scalar": lambda tag, array: ScalarValue(tag, to_number(array)),
    "image": ImageValue,
    "tensor": TensorValue,
    "histogram": HistogramValue,
}


def _is_waiting() -> bool:
    """Whether MindSpore holds anything that operators have put out."""
    return bool(
        _mindspore_records.SUMMARY_TENSOR_CACHE or _mindspore_operators.SUMMARY_TENSOR_CACHE
    )


def _deliver() -> None:
    """Empties MindSpore's places into the mailboxes; the caller holds the lock."""
    values, errors = _take_all()
    for mailbox in _mailboxes:
        mailbox._receive(values, errors)


def _take_all() -> tuple[dict[Operator, Any], list[str]]:
    """Returns the latest value of each operator, and the errors of those without a tag."""
    found = {}
    errors = []
    # Through the module, always: the function rebinds the dictionary.
    for name, value in _mindspore_records._get_summary_tensor_data().items():
        match = _NAME.fullmatch(name)
        if match is None:
            errors.append(three_part("a summary operator's name", name, "TAG[:KIND]"))
        else:
            found[Operator(match["kind"].lower(), match["tag"])] = value
    waiting = _mindspore_operators.SUMMARY_TENSOR_CACHE
    taken = waiting[:]
    del waiting[: len(taken)]  # in place: another thread may just be appending
    for primitive, tag, value in taken:
        if not isinstance(tag, str) or not tag:
            errors.append(three_part(f"the tag of a {primitive}", tag, "a non-empty str"))
        else:
            found[Operator(primitive.removesuffix("Summary").lower(), tag)] = value
    return found, errors
