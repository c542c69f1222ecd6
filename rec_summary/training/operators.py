"""What summary operators inside a network have put out.

MindSpore keeps their values in two places of its own: in PyNative mode a list that grows
until somebody empties it, in graph mode a dictionary with the latest value of each tag.
Emptying them is all or nothing for the whole process, so it is done here, in one place,
and every collector and summary record gets a copy of its own: none is lost to another, and
none is counted twice.

Source: `mindspore.ops.ScalarSummary`, `ImageSummary`, `TensorSummary`, `HistogramSummary`.
"""

from __future__ import annotations

import re
import threading
import weakref
from typing import Any, Final, NamedTuple

from mindspore.train.summary import summary_record as _mindspore_records

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
    next one, and memory is bounded by the number of tags.
    """

    def __init__(self) -> None:
        """Begins empty: what operators put out before is not this owner's."""
        _take_all()
        self._values: dict[Operator, Any] = {}
        with _lock:
            _mailboxes.add(self)

    def take(self) -> dict[Operator, Any]:
        """Returns the values since the last call, as MindSpore Tensors, and forgets them."""
        _deliver()
        with _lock:
            values, self._values = self._values, {}
        return values

    def close(self) -> None:
        """Gets nothing any more."""
        with _lock:
            _mailboxes.discard(self)
            self._values = {}


_lock = threading.Lock()
_mailboxes: weakref.WeakSet[Mailbox] = weakref.WeakSet()


def discard() -> None:
    """Throws away what operators have put out, for everybody.

    An evaluation runs the same network; its values are not those of a training step.
    """
    _take_all()


def _deliver() -> None:
    values = _take_all()
    if values:
        with _lock:
            for mailbox in _mailboxes:
                mailbox._values.update(values)


def _take_all() -> dict[Operator, Any]:
    # Through the module, always: the second function rebinds the dictionary.
    _mindspore_records._record_summary_tensor_data()
    found = {}
    for name, tensor in _mindspore_records._get_summary_tensor_data().items():
        match = _NAME.fullmatch(name)
        if match is not None:
            found[Operator(match["kind"].lower(), match["tag"])] = tensor
    return found
