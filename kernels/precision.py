"""In which precision a kernel's products are made; sums are float32 always.

| name | operands | relative error of a product |
|---|---|---|
| bf16 | rounded to bfloat16 | 4e-3 |
| fp16 | rounded to float16: of the orthogonal read alone, whose operands are normed | 5e-4 |
| tf32 | rounded to 10-bit mantissas | 5e-4 |
| bf16x3 | split into two bfloat16, three products | 2e-5 |
| bf16x6 | split into three bfloat16, six products | float32's |
| ieee | float32, without matrix units | float32's |
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

Precision = Literal["auto", "bf16", "tf32", "bf16x3", "bf16x6", "ieee"]
"""`auto` follows torch's own products: bf16 for 16-bit inputs, tf32 where
`torch.backends.cuda.matmul.allow_tf32` is set, else bf16x6, which is float32's on matrix units."""


def choose_precision(op: str, precision: str, like: Tensor) -> str:
    """The name of a precision other than auto, for products with a tensor like `like`. Raises ValueError."""
    if precision not in get_args(Precision):
        raise ValueError(f"{op}: unknown precision {precision!r}; use {', '.join(get_args(Precision))}")
    if precision != "auto":
        return precision
    if like.dtype in (torch.bfloat16, torch.float16):
        return "bf16"
    return "tf32" if torch.backends.cuda.matmul.allow_tf32 else "bf16x6"
