"""Custom lineage entries: of the constructor, and of a tuner's environment."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from rec_summary._pb import lineage_pb2
from rec_summary.checks import check_that, check_type, check_unicode, valid_unicode
from rec_summary.errors import three_part

logger = logging.getLogger("rec_summary.training")

CustomValue = Any
"""A str, int, float, bool, None or real numpy number; or a dict, list or tuple of these."""

HYPER_CONFIG: Final = "MINDINSIGHT_HYPER_CONFIG"
_HYPER_CONFIG_CHARS: Final = 100_000

_NAME: Final = "custom_lineage_data"
_TEXTS: Final = (str, bool, int, float, np.longdouble, type(None))
_INT32: Final = range(-(2**31), 2**31)
_INT64: Final = range(-(2**63), 2**63)
_DEPTH: Final = 16  # of nested dictionaries


def check_custom_lineage(
    data: Mapping[str, CustomValue] | None, name: str = _NAME
) -> dict[str, CustomValue]:
    """Returns the entries of an argument. Dictionaries may be nested.

    Raises:
        TypeError: A key is not a str, or a value cannot be recorded without loss.
        ValueError: The dictionaries are nested too deeply, or a key is not valid Unicode.
    """
    entries = dict(check_type(name, data, (Mapping, type(None)), "a dict or None") or {})
    custom_lineage(entries, name)
    return entries


def with_environment(data: Mapping[str, CustomValue]) -> dict[str, CustomValue]:
    """Adds the entries of a tuner's environment variable; an entry of `data` has precedence.

    Source: MindInsight's optimizer sets `MINDINSIGHT_HYPER_CONFIG` to a JSON object with the
    entries in `custom_lineage_data`. An invalid variable is ignored with a warning, because it is
    not an argument of the collector.
    """
    text = os.environ.get(HYPER_CONFIG)
    if text is None:
        return dict(data)
    try:
        expected = f"at most {_HYPER_CONFIG_CHARS} characters"
        check_that(len(text) <= _HYPER_CONFIG_CHARS, "its length", len(text), expected)
        config = json.loads(text)
        entries = config.get(_NAME) if isinstance(config, dict) else config
        checked = check_custom_lineage(entries)
    except (ValueError, TypeError, RecursionError) as error:
        logger.warning("SummaryCollector: %s is ignored: %s", HYPER_CONFIG, error)
        return dict(data)
    return {**checked, **data}


def custom_lineage(data: Mapping[str, CustomValue], name: str = _NAME) -> lineage_pb2.LineageEvent:
    """Returns the entries as a lineage event, each in the map of its type.

    MindSpore's maps have no 64-bit integers and no booleans, so these are in maps of our own. A
    second entry makes them visible in MindInsight: the text of the integer, or 0 or 1. Larger
    integers, None, lists and empty dictionaries are stored as text: MindInsight loses the lineage
    of all runs if a message is empty. For our own readers, an entry with None is absent.

    Raises:
        TypeError, ValueError: As `check_custom_lineage` does.
    """
    event = lineage_pb2.LineageEvent(wall_time=time.time())
    event.user_defined_info.SetInParent()
    _fill(event.user_defined_info, name, data, 0)
    return event


def _fill(
    message: lineage_pb2.UserDefinedInfo, name: str, data: Mapping[Any, Any], depth: int
) -> None:
    check_that(depth < _DEPTH, name, data, f"at most {_DEPTH} dictionaries inside each other")
    for key, value in data.items():
        check_type(f"a key of {name}", key, str, "a str")
        check_unicode(f"a key of {name}", key)
        info, inner = message.user_info.add(), f"{name}[{key!r}]"
        value = _plain(value)
        if isinstance(value, Mapping) and value:
            _fill(info.map_dict[key], inner, value, depth + 1)
        elif isinstance(value, bool):
            info.map_bool[key] = value
            info.map_int32[key] = int(value)
        elif isinstance(value, int) and value in _INT32:
            info.map_int32[key] = value
        elif isinstance(value, int) and value in _INT64:
            info.map_int64[key] = value
            info.map_str[key] = str(value)
        elif isinstance(value, float):
            info.map_double[key] = value
        else:
            info.map_str[key] = valid_unicode(_text(inner, value))
            if value is None:
                info.none.append(key)


def _plain(value: object) -> Any:
    """Returns a real number or bool of NumPy as Python's; a long double has none."""
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)  # a range compares a member of an IntEnum with each of its numbers
    return value.item() if isinstance(value, np.generic) and value.dtype.kind in "biuf" else value


def _text(name: str, value: object) -> str:
    if isinstance(value, (list, tuple)):
        if any(isinstance(item, (Mapping, list, tuple)) for item in value):
            raise TypeError(three_part(name, value, "a flat list, or a dict"))
        return "[" + ", ".join(_text(name, _plain(item)) for item in value) + "]"
    if isinstance(value, Mapping):  # an empty one
        return "{}"
    expected = "a str, a real number, a bool, None, or a list or dict of these"
    check_that(isinstance(value, _TEXTS), name, value, expected, TypeError)
    if isinstance(value, str):
        return str.__str__(value)  # a member of an Enum of str has another text
    try:
        return str(value)
    except ValueError as error:  # Python's limit
        expected = f"an int of at most {sys.get_int_max_str_digits():,} digits"
        raise ValueError(three_part(name, value, expected)) from error
