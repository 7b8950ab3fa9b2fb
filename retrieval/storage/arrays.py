"""Arrays on disk: written piece by piece, read through a memory map."""

from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

Array: TypeAlias = NDArray[Any]

HELD = 1 << 16
"""Number of single values that are kept in memory before they are written."""


class ArrayWriter:
    """Write a one-dimensional `.npy` file of unknown length without keeping it in memory.

    ```python
    with ArrayWriter(folder / "lengths.npy", np.int32) as lengths:
        lengths.extend(np.array([3, 1, 2]))
        lengths.append(7)
    ```
    """

    def __init__(self, path: Path, dtype: DTypeLike) -> None:
        self.dtype = np.dtype(dtype)
        self._written = 0
        self._held: list[int] = []
        self._file = path.open("wb")
        self._write_header()

    def __len__(self) -> int:
        return self._written + len(self._held)

    def append(self, value: int) -> None:
        """Add one value at the end."""
        self._held.append(value)
        if len(self._held) >= HELD:
            self._write_held()

    def extend(self, values: Array) -> None:
        """Add many values at the end."""
        self._write_held()
        self._write(values)

    def __enter__(self) -> "ArrayWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            # The first error is the one to report, not the error of closing the file, for example on a full disk.
            with suppress(OSError):
                self._file.close()
            return
        self._write_held()
        # numpy leaves room in the header for the length to grow, so the final header has the same size.
        self._file.seek(0)
        self._write_header()
        self._file.close()

    def _write_held(self) -> None:
        self._write(np.array(self._held, dtype=self.dtype))
        self._held.clear()

    def _write(self, values: Array) -> None:
        # Not with tofile, whose error on a full disk does not say so.
        self._file.write(np.ascontiguousarray(values, dtype=self.dtype).view(np.uint8).data)
        self._written += len(values)

    def _write_header(self) -> None:
        header = {"descr": np.lib.format.dtype_to_descr(self.dtype), "fortran_order": False, "shape": (self._written,)}
        np.lib.format.write_array_header_1_0(self._file, header)


def map_array(path: Path) -> Array:
    """Memory-map a `.npy` file."""
    # As a plain array: small accesses to numpy's memmap class are several times slower.
    return np.asarray(np.load(path, mmap_mode="r"))
