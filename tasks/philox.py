"""Philox4x32-10, a counter-based random generator, in torch integer operations.

Every block of four 32-bit words is a pure function of a 128-bit counter and a 64-bit key, so any part of any
stream can be made alone, on any device, with the same bits. Source: Salmon, Moraes, Dror and Shaw, "Parallel
random numbers: as easy as 1, 2, 3" (SC 2011), section 3.3, and their Random123 library.

Words are held in int64. A product of two of them wraps in two's complement, which leaves its 64 bits right;
only the shift that takes the high half is signed, so what it leaves above 32 bits is masked.

Legend: R keys, B × K counters of each key, N rounds.
"""

from __future__ import annotations

import torch
from torch import Tensor

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
_CPU_BLOCKS = 32768
"""Blocks worked on at once on a CPU: few enough that their six words of 8 bytes, 1.5 MB, stay in cache, and
enough that the cost of calling torch does not show (measured: 8192 is a quarter slower)."""


def philox(counter: tuple[Tensor, Tensor, Tensor, Tensor], key: Tensor) -> Tensor:
    """Random words `[R, B, K, 4]`, int64 in [0, 2^32).

    `counter` holds the four words of the counters, least significant first: int64 tensors that broadcast to
    `[R, B, K]`; `key` is int64 `[R, 2]`. All lie in [0, 2^32), unchecked.
    """
    _, *counter_RBK = torch.broadcast_tensors(key[:, :1, None], *counter)
    R, B, K = counter_RBK[0].shape
    out_RBK4 = torch.empty((R, B, K, 4), dtype=torch.int64, device=key.device)
    keys_N2R11 = _key_schedule(key)
    lanes, rows = _piece(R, B, K) if key.device.type == "cpu" else (R, B)
    scratch = torch.empty(6 * lanes * rows * K, dtype=torch.int64, device=key.device)
    for r in range(0, R, max(1, lanes)):
        for b in range(0, B, max(1, rows)):
            piece = slice(r, r + lanes), slice(b, b + rows)
            _fill(out_RBK4[piece], [word[piece] for word in counter_RBK], keys_N2R11[:, :, piece[0]], scratch)
    return out_RBK4


def _piece(R: int, B: int, K: int) -> tuple[int, int]:
    """How many lanes and how many rows of each to work on at once."""
    rows = min(B, max(1, _CPU_BLOCKS // max(1, K)))
    lanes = min(R, max(1, _CPU_BLOCKS // max(1, rows * K)))
    return lanes, rows


def _key_schedule(key_R2: Tensor) -> Tensor:
    """The keys of the rounds, `[N, 2, R, 1, 1]`; only their low 32 bits count.

    The steps are taken less 2^32, which leaves those bits: Inductor (torch 2.11) narrows the counter to 32
    bits and then refuses a factor that has no signed 32-bit form.
    """
    rounds_N1 = torch.arange(_ROUNDS, device=key_R2.device)[:, None]
    keys_N2R = torch.stack([rounds_N1 * (weyl - 2**32) + key_R2[:, i] for i, weyl in enumerate(_WEYL)], 1)
    return keys_N2R[..., None, None]


def _fill(out_RBK4: Tensor, counter_RBK: list[Tensor], keys_N2R11: Tensor, scratch: Tensor) -> None:
    """The ten rounds, in place: words 0 and 2 are `even`, 1 and 3 are `odd`, each `[2, R, B, K]`."""
    shape = out_RBK4.shape[:-1]
    even, odd, product = scratch[: 6 * shape.numel()].view(3, 2, *shape)
    (even_0, even_1), (odd_0, odd_1), (product_0, product_1) = even, odd, product
    for half, word in zip((even_0, odd_0, even_1, odd_1), counter_RBK, strict=True):
        half.copy_(word)
    # Tensors, since torch would wrap a Python number anew in every call, which costs as much as the work; on
    # the CPU, from where they reach a GPU's kernels as arguments.
    first, second, shift, mask = torch.tensor([*_MULTIPLIERS, 32, 0xFFFFFFFF], device="cpu").unbind()
    for key_2R11 in keys_N2R11:
        # Crossed: word 0 is made of the second product and word 2 of the first.
        torch.mul(even_1, second, out=product_0)
        torch.mul(even_0, first, out=product_1)
        torch.bitwise_right_shift(product, shift, out=even)
        even.bitwise_xor_(odd).bitwise_xor_(key_2R11).bitwise_and_(mask)
        # The low halves need no mask before the end: each is only mixed into a word that is masked after.
        (odd, odd_0, odd_1), (product, product_0, product_1) = (
            (product, product_0, product_1),
            (odd, odd_0, odd_1),
        )
    odd.bitwise_and_(mask)
    for i, word in enumerate((even_0, odd_0, even_1, odd_1)):
        out_RBK4[..., i].copy_(word)
