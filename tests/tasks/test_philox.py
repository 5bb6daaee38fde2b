"""The generator against Random123's published vectors and against itself in pieces."""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor

import statelab.tasks.philox as module
from statelab.tasks.philox import philox

WORD = 2**32 - 1

# Random123, tests/kat_vectors, philox4x32 10: counter, key, block.
KNOWN = {
    "zero": ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    "ones": ((WORD,) * 4, (WORD,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    "pi": (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
}


def block(counter: tuple[int, ...], key: tuple[int, ...]) -> list[int]:
    """One block by Python's own integers."""
    (a, b, c, d), (k, m) = counter, key
    for _ in range(10):
        p, q = a * 0xD2511F53, c * 0xCD9E8D57
        a, b, c, d = q >> 32 ^ b ^ k, q & WORD, p >> 32 ^ d ^ m, p & WORD
        k, m = (k + 0x9E3779B9) & WORD, (m + 0xBB67AE85) & WORD
    return [a, b, c, d]


def words(*values: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    a, b, c, d = torch.tensor(values)
    return a, b, c, d


@pytest.mark.parametrize("name", KNOWN)
def test_published_vectors(name: str) -> None:
    counter, key, expected = KNOWN[name]
    assert philox(words(*counter), torch.tensor([key])).flatten().tolist() == list(expected)
    assert block(counter, key) == list(expected)


def test_random_counters_and_keys() -> None:
    draw = random.Random(0)
    counters = [[draw.getrandbits(32) for _ in range(4)] for _ in range(40)]
    keys = [[draw.getrandbits(32) for _ in range(2)] for _ in range(3)]
    a, b, c, d = torch.tensor(counters).T.reshape(4, 1, 8, 5)
    found_RBK4 = philox((a, b, c, d), torch.tensor(keys))
    assert found_RBK4.shape == (3, 8, 5, 4)
    for r, key in enumerate(keys):
        expected = [block(tuple(counter), tuple(key)) for counter in counters]
        assert found_RBK4[r].reshape(40, 4).tolist() == expected


@pytest.mark.parametrize("blocks", [1, 7, 20, 64, 1000])
def test_any_piece_size_gives_the_same_words(blocks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    zero = torch.tensor(0)
    counter = (torch.arange(6)[:, None], zero, torch.arange(7), zero)
    key = torch.tensor([[r, 1] for r in range(5)])
    whole = philox(counter, key)
    monkeypatch.setattr(module, "_CPU_BLOCKS", blocks)
    assert torch.equal(philox(counter, key), whole)


def test_no_words_asked() -> None:
    zero = torch.tensor(0)
    assert philox((zero, zero, torch.arange(0), zero), torch.tensor([[1, 2]])).shape == (1, 1, 0, 4)
