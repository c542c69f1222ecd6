"""The types of NumPy arrays, for annotations."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Arrays = Mapping[str, Array]
Bytes = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
