"""Types of the numbers in stored states, checked when a state is read back."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

from msgspec import Meta

Step = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Count = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Checksum = Annotated[int, Meta(ge=0, le=(1 << 32) - 1)]  # a CRC-32
Rank = Annotated[int, Meta(ge=0, le=10**9)]
Seconds = Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)]  # finite


def check_unicode(value: Any) -> None:
    """Makes sure that protobuf can hold all strings in a value.

    Raises:
        ValueError: One of them has a lone surrogate.
    """
    json.dumps(value, ensure_ascii=False).encode()
