"""Custom lineage entries: of the constructor, and of a tuner's environment."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from rec_summary._pb import lineage_pb2
from rec_summary.checks import check_type, check_unicode
from rec_summary.errors import three_part

logger = logging.getLogger("rec_summary.training")

CustomValue = Any
"""A str, int, float, bool, None or numpy number; or a dict, list or tuple of these."""

HYPER_CONFIG: Final = "MINDINSIGHT_HYPER_CONFIG"
_HYPER_CONFIG_CHARS: Final = 100_000

_INT32: Final = range(-(2**31), 2**31)
_INT64: Final = range(-(2**63), 2**63)
_DEPTH: Final = 16  # of nested dictionaries


def check_custom_lineage(data: Mapping[str, CustomValue] | None) -> dict[str, CustomValue]:
    """Returns the entries. Dictionaries may be nested.

    Raises:
        TypeError: A key is not a str, or a value cannot be recorded without loss.
        ValueError: The dictionaries are nested too deeply, or a key is not valid Unicode.
    """
    name = "custom_lineage_data"
    if data is None:
        return {}
    check_type(name, data, Mapping, "a dict or None")
    _check_entries(name, data, 0)
    return dict(data)


def _check_entries(name: str, data: Mapping[Any, Any], depth: int) -> None:
    if depth >= _DEPTH:
        raise ValueError(three_part(name, data, f"at most {_DEPTH} dictionaries inside each other"))
    for key, value in data.items():
        check_type(f"a key of {name}", key, str, "a str")
        check_unicode(f"a key of {name}", key)
        _check_value(f"{name}[{key!r}]", value, depth)


def _check_value(name: str, value: Any, depth: int) -> None:
    if isinstance(value, Mapping):
        _check_entries(name, value, depth + 1)
    elif isinstance(value, (list, tuple)):
        for item in value:
            if isinstance(item, (Mapping, list, tuple)):
                raise TypeError(three_part(name, value, "a flat list, or a dict"))
            _check_value(name, item, depth)
    elif not isinstance(value, (str, bool, int, float, np.number, np.bool_, type(None))):
        expected = "a str, a number, a bool, None, or a dict of these"
        raise TypeError(three_part(name, value, expected))


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
        if len(text) > _HYPER_CONFIG_CHARS:
            expected = f"at most {_HYPER_CONFIG_CHARS} characters"
            raise ValueError(three_part("its length", len(text), expected))
        config = json.loads(text)
        entries = config.get("custom_lineage_data") if isinstance(config, dict) else config
        found = check_custom_lineage(entries)
    except (ValueError, TypeError, RecursionError) as error:
        logger.warning("SummaryCollector: %s is ignored: %s", HYPER_CONFIG, error)
        return dict(data)
    return {**found, **data}


def custom_lineage(data: Mapping[str, CustomValue]) -> lineage_pb2.LineageEvent:
    """Returns the entries as a lineage event, each in the map of its type.

    MindSpore's maps have no 64-bit integers and no booleans, so these are in maps of our own. A
    second entry makes them visible in MindInsight: the text of the integer, or 0 or 1. Larger
    integers, None, lists and empty dictionaries are stored as text: MindInsight loses the lineage
    of all runs if a message is empty.
    """
    event = lineage_pb2.LineageEvent(wall_time=time.time())
    event.user_defined_info.SetInParent()
    for key, value in data.items():
        _fill(event.user_defined_info.user_info.add(), key, value)
    return event


def _fill(info: lineage_pb2.UserDefinedInfo, key: str, value: CustomValue) -> None:
    if isinstance(value, (np.number, np.bool_)):
        value = value.item()
    if isinstance(value, Mapping) and value:
        nested = info.map_dict[key]
        for inner, item in value.items():
            _fill(nested.user_info.add(), inner, item)
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
    elif isinstance(value, str):
        # protobuf does not accept a lone surrogate, which Python allows in a str
        info.map_str[key] = value.encode("utf-8", "replace").decode("utf-8")
    else:
        info.map_str[key] = _text(value)


def _text(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_text(item) for item in value) + "]"
    return "{}" if value == {} else str(value)
