"""How vectors are stored. A file of its own, because commands check the name before they import torch."""

from typing import Literal, TypeAlias, get_args

VectorType: TypeAlias = Literal["float32", "float16", "int8"]
"""How vectors are stored; see `VectorCache.open`."""
VECTOR_TYPES: tuple[VectorType, ...] = get_args(VectorType)
