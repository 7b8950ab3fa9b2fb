"""Arrays on disk: written piece by piece, read through a memory map."""

from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


class ArrayWriter:
    """Write a one-dimensional `.npy` file of unknown length without ever holding it.

    >>> with ArrayWriter(folder / "lengths.npy", np.int32) as lengths:
    ...     lengths.append(np.array([3, 1, 2]))
    """

    def __init__(self, path: Path, dtype: Any) -> None:
        self.dtype = np.dtype(dtype)
        self.length = 0
        self._file = path.open("wb")
        self._write_header()

    def append(self, values: Array) -> None:
        """Add values at the end."""
        np.ascontiguousarray(values, dtype=self.dtype).tofile(self._file)
        self.length += len(values)

    def __enter__(self) -> "ArrayWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # numpy leaves room in the header for the first dimension to grow, so the final header takes the same bytes.
        self._file.seek(0)
        self._write_header()
        self._file.close()

    def _write_header(self) -> None:
        header = {"descr": np.lib.format.dtype_to_descr(self.dtype), "fortran_order": False, "shape": (self.length,)}
        np.lib.format.write_array_header_1_0(self._file, header)


def map_array(path: Path) -> Array:
    """Open a `.npy` file without reading it: pages come from the disk when they are touched."""
    # A plain array over the map: numpy's memmap class makes every small access several times slower.
    return np.asarray(np.load(path, mmap_mode="r"))
