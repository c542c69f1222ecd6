"""The values of summary operators inside a network.

MindSpore keeps these values in two places: in PyNative mode in a list that grows until it is
emptied, in graph mode in a dictionary with the latest value of each tag. Both belong to the whole
process and can only be emptied completely. So this module alone empties them, and gives each
collector and each summary record a copy. No value is lost to another owner or counted twice.

MindSpore's own function for the list drops all entries when one of them is invalid. Here an
invalid entry costs only itself.

Source: `mindspore.ops.ScalarSummary`, `ImageSummary`, `TensorSummary`, `HistogramSummary`. The
probes of this package are tensors whose tag has a prefix. They go only to the mailboxes that want
them, and the network computes only those that some mailbox wants.
"""

from __future__ import annotations

import functools
import re
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from rec_summary.errors import three_part, verbatim
from rec_summary.records.failures import Troubles
from rec_summary.training import loaded
from rec_summary.training.tensors import own_array, to_number
from rec_summary.values.image import MAX_TILES, is_image
from rec_summary.values.summary import HISTOGRAM, IMAGE, SCALAR, TENSOR, SummaryValue

PROBE: Final = "probe"
GRADIENTS: Final = "gradients"

KINDS: Final = (TENSOR, SCALAR, IMAGE, HISTOGRAM)
"""The kinds of values of a user's operators."""

_NAME: Final = re.compile(r"(?P<tag>.+)\[:(?P<kind>.+)\]", re.DOTALL)
_OWN: Final = "rec_summary/"  # before the kind and the tag of what is not a user's operator


class Operator(NamedTuple):
    """The identity of a summary operator.

    Attributes:
        kind: `scalar`, `image`, `tensor` or `histogram`; `probe` or `gradients` for a tensor that
            only this package reads.
        tag: Its tag in the network; for `gradients`, what they are and of which optimizer.
    """

    kind: str
    tag: str


def tag_of(kind: str, tag: str) -> str:
    """Returns the tag, for MindSpore, of a tensor that only this package reads."""
    return f"{_OWN}{kind}/{tag}"


def is_recorded(operator: Operator) -> bool:
    """Whether this is an operator of the user, which is recorded as it is."""
    return operator.kind not in (PROBE, GRADIENTS)


def wanted_of(operators: Iterable[Operator]) -> list[Operator]:
    """Returns the operators whose values a mailbox wants."""
    mailboxes = _open_mailboxes()
    return [one for one in operators if any(mailbox.wants(one) for mailbox in mailboxes)]


class Mailbox:
    """Receives a copy of every value from its creation until it is closed.

    A mailbox keeps only the latest value of a tag, so its memory is bounded by the number of tags.
    A read of any mailbox empties MindSpore's list, so read often in PyNative mode.

    Attributes:
        wants: Whether it receives the values of an operator.
    """

    def __init__(
        self,
        troubles: Troubles | None = None,
        wants: Callable[[Operator], bool] = is_recorded,
    ) -> None:
        """Begins empty: earlier values of operators are not delivered.

        Args:
            troubles: Receives each value without a valid tag.
            wants: Whether it receives the values of an operator. The answer may change.
        """
        self.wants = wants
        self._values: dict[Operator, Any] = {}
        self._troubles = troubles
        self._paused = False
        with _lock:
            deliver()  # to the mailboxes that exist already
            _mailboxes[self] = None

    def take(self) -> dict[Operator, Any]:
        """Returns the values since the last call, as the network computed them, and drops them.

        They are MindSpore Tensors, unchecked: see `snapshot`.
        """
        if not (self._values or _has_values()):  # as at nearly every step
            return {}
        with _lock:
            deliver()
            values, self._values = self._values, {}
        return values

    def pause(self, paused: bool) -> None:
        """Receives nothing from now on and keeps its values, or receives values again.

        Args:
            paused: Whether it receives nothing, for example during an evaluation.
        """
        with _lock:
            deliver()
            self._paused = paused

    def close(self) -> None:
        """Drops its values and receives nothing from now on."""
        with _lock:
            deliver()  # to the other mailboxes
            _mailboxes.pop(self, None)
            self._values = {}

    def _receive(self, values: dict[Operator, Any], errors: list[str]) -> None:
        if self._paused:
            return
        self._values.update({key: value for key, value in values.items() if self.wants(key)})
        if self._troubles is not None:
            for error in errors:
                self._troubles.report("summary operator", error)


_lock = threading.RLock()  # a signal handler may record, or close a mailbox
_mailboxes: weakref.WeakKeyDictionary[Mailbox, None] = weakref.WeakKeyDictionary()


def _open_mailboxes() -> list[Mailbox]:
    # An iterator would fail if another thread, or a signal handler, opens a mailbox meanwhile.
    mailboxes = (reference() for reference in _mailboxes.keyrefs())
    return [mailbox for mailbox in mailboxes if mailbox is not None]


def deliver() -> None:
    """Moves the values of operators to every mailbox that is not paused."""
    if not _has_values():
        return
    with _lock:
        by_name, entries = _source().take_operator_values()
        values: dict[Operator, Any] = {}
        errors = []
        for name, value in by_name.items():
            match = _NAME.fullmatch(name)
            if match is None:
                errors.append(three_part("a summary operator's name", name, "TAG[:KIND]"))
            else:
                values[_operator(match["kind"].lower(), match["tag"])] = value
        for primitive, tag, value in entries:
            if not isinstance(tag, str) or not tag:
                errors.append(three_part(f"the tag of a {primitive}", tag, "a non-empty str"))
            else:
                values[_operator(primitive.removesuffix("Summary").lower(), tag)] = value
        for mailbox in _open_mailboxes():
            mailbox._receive(values, errors)


def discard() -> None:
    """Drops the values that no mailbox has received yet.

    An evaluation runs the same network. Its values do not belong to a training step.
    """
    if _has_values():
        with _lock:
            _source().take_operator_values()


def snapshot(kind: str, tag: str, value: Any) -> SummaryValue:
    """Returns a value of an operator, or of a user, as a snapshot that owns its memory.

    Args:
        kind: `scalar`, `image`, `tensor` or `histogram`.
        tag: Its tag.
        value: A Tensor, an array, a number, or a list of these.

    Raises:
        TypeError: The elements are not real numbers.
        ValueError: A scalar is empty, an image does not have the shape of one, or the kind is
            unknown.
    """
    if kind not in KINDS:
        raise ValueError(three_part("a kind of summary", kind, f"one of {', '.join(KINDS)}"))
    what = f"{kind} {tag!r}"
    array = own_array(value, what, MAX_TILES if kind == IMAGE else None)
    if kind == IMAGE and not is_image(array):
        expected = "a non-empty array of shape [N, C, H, W] or [N, H, W, C] with C of 1 or 3"
        raise ValueError(three_part(what, verbatim(f"shape {array.shape}"), expected))
    return SummaryValue(kind, tag, to_number(array) if kind == SCALAR else array)


def _has_values() -> bool:
    """Whether operators have values; none without MindSpore, which runs them."""
    return loaded.mindspore() is not None and _source().has_operator_values()


@functools.cache
def _source() -> Any:
    from rec_summary.training import _mindspore

    return _mindspore


def _operator(kind: str, tag: str) -> Operator:
    if kind == TENSOR and tag.startswith(_OWN):
        kind, _, tag = tag.removeprefix(_OWN).partition("/")
    return Operator(kind, tag)
