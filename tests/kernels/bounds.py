"""Kernels in Triton's interpreter may touch their own arguments' memory alone: anything else is named at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np


@contextmanager
def within_arguments() -> Iterator[None]:
    """Within the block, an interpreted kernel that reads or writes outside its tensor arguments raises IndexError."""
    from triton.runtime import interpreter

    ranges: list[tuple[int, int]] = []
    memory, take_arguments = interpreter._interpreter, interpreter.GridExecutor._init_args_hst

    def noting(self: Any, args: Any, kwargs: Any) -> Any:
        taken = take_arguments(self, args, kwargs)
        ranges.clear()
        for value in [*taken[0], *taken[1].values()]:
            if hasattr(value, "untyped_storage"):
                storage = value.untyped_storage()
                ranges.append((storage.data_ptr(), storage.data_ptr() + storage.nbytes()))
        return taken

    def check(pointers: Any, mask: Any, size: int, what: str) -> None:
        touched = np.asarray(pointers).reshape(-1)[np.asarray(mask).reshape(-1).astype(bool)].astype(np.int64)
        inside = np.zeros(touched.shape, dtype=bool)
        for low, high in ranges:
            inside |= (touched >= low) & (touched + size <= high)
        if not inside.all():
            raise IndexError(f"a kernel {what} {int((~inside).sum())} addresses outside its arguments")

    class Memory:
        def __getattr__(self, name: str) -> Any:
            return getattr(memory, name)

        def load(self, pointers: Any, mask: Any, other: Any, dtype: Any) -> Any:
            check(pointers, mask, np.dtype(dtype).itemsize, "reads")
            return memory.load(pointers, mask, other, dtype)

        def store(self, pointers: Any, value: Any, mask: Any) -> Any:
            check(pointers, mask, np.asarray(value).dtype.itemsize, "writes")
            return memory.store(pointers, value, mask)

    interpreter._interpreter, interpreter.GridExecutor._init_args_hst = Memory(), noting
    try:
        yield
    finally:
        interpreter._interpreter, interpreter.GridExecutor._init_args_hst = memory, take_arguments
