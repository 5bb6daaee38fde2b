"""Groups by name: published orders and table, the axioms, names, refusals; products of many elements."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from statelab.tasks.group_products import prefix_products
from statelab.tasks.groups import cayley_table, elements, order, swaps
from tests.tasks.algebra import points

GROUPS = {
    "S2": 2, "S3": 6, "S4": 24, "S5": 120, "A3": 3, "A4": 12, "A5": 60, "Z2": 2, "Z5": 5, "Z60": 60,
    "D3": 6, "D4": 8, "D7": 14, "A4xZ5": 60, "Z2xS3": 12, "Z2xZ3xD4": 48,
}  # fmt: skip

PUBLISHED_S3 = (
    (0, 1, 2, 3, 4, 5),
    (1, 0, 4, 5, 2, 3),
    (2, 3, 0, 1, 5, 4),
    (3, 2, 5, 4, 0, 1),
    (4, 5, 1, 0, 3, 2),
    (5, 4, 3, 2, 1, 0),
)


def test_the_published_table_and_orders() -> None:
    assert cayley_table("S3") == PUBLISHED_S3
    assert elements("S3") == ("123", "132", "213", "231", "312", "321")
    assert elements("A5")[:2] == ("12345", "12453")
    assert elements("Z5") == ("0", "1", "2", "3", "4")
    assert elements("D3") == ("r0", "r1", "r2", "s0", "s1", "s2")
    assert elements("Z2xS3")[5:8] == ("0,321", "1,123", "1,132")


@pytest.mark.parametrize("group", GROUPS)
def test_the_table_is_that_of_composed_permutations(group: str) -> None:
    members = points(group)
    place = {p: i for i, p in enumerate(members)}
    assert order(group) == len(members) == len(elements(group)) == GROUPS[group]
    expected = tuple(tuple(place[tuple(a[i] for i in b)] for b in members) for a in members)
    assert cayley_table(group) == expected


@pytest.mark.parametrize("group", ["S4", "D5", "A4xZ5"])
def test_element_0_is_the_identity_and_every_product_is_reached_once(group: str) -> None:
    table = cayley_table(group)
    every = tuple(range(order(group)))
    assert table[0] == every == tuple(row[0] for row in table)
    assert all(tuple(sorted(line)) == every for line in (*table, *zip(*table, strict=True)))


@pytest.mark.slow
@pytest.mark.parametrize("group", ["S6", "Z1024", "D512"])
def test_the_largest_tables(group: str) -> None:
    table = torch.tensor(cayley_table(group))
    G = order(group)
    assert torch.equal(table.sort(-1).values, torch.arange(G).expand(G, G))
    a, b, c = torch.randint(G, (3, 10_000), generator=torch.Generator().manual_seed(0))
    assert torch.equal(table[table[a, b], c], table[a, table[b, c]])


@pytest.mark.parametrize(("group", "count"), [("S2", 2), ("S3", 4), ("S4", 7), ("S5", 11)])
def test_swaps_move_two_points_or_none(group: str, count: int) -> None:
    found = swaps(group)
    assert len(found) == count
    assert found[0] == 0
    table = cayley_table(group)
    assert all(table[a][a] == 0 for a in found)
    moved = [sum(i != j for i, j in enumerate(points(group)[a])) for a in found]
    assert moved == [0] + [2] * (count - 1)


@pytest.mark.parametrize(
    ("group", "sentence"),
    [
        ("Q8", "unknown group 'Q8'; use S, A, Z or D and a number"),
        ("", "unknown group ''"),
        ("S", "unknown group 'S'"),
        ("S03", "unknown group 'S03'"),
        ("A2", r"unknown group 'A2'; .*A >= 3"),
        ("S3xZ1", "unknown group 'S3xZ1'"),
        ("S3 x Z2", "unknown group"),
        ("S7", "group 'S7' is too large for a table; use one of at most 1024 elements"),
        ("S999999999", "too large"),
        ("S6xZ2", "too large"),
    ],
)
def test_names_that_are_no_group(group: str, sentence: str) -> None:
    for function in (order, elements, cayley_table):
        with pytest.raises(ValueError, match=sentence):
            function(group)


@settings(deadline=None, max_examples=60)
@given(
    group=st.sampled_from(sorted(GROUPS)),
    length=st.integers(1, 70),
    seed=st.integers(0, 2**32),
)
def test_prefix_products_are_those_of_a_loop(group: str, length: int, seed: int) -> None:
    table = torch.tensor(cayley_table(group))
    generator = torch.Generator().manual_seed(seed)
    word = torch.randint(order(group), (2, 3, length), generator=generator)
    expected = word.clone()
    for t in range(1, length):
        expected[..., t] = table[expected[..., t - 1], word[..., t]]
    assert torch.equal(prefix_products(group, word), expected)
    assert torch.equal(prefix_products(group, word.mT.contiguous().mT), expected)


def test_prefix_products_of_more_than_is_worked_on_at_once() -> None:
    table = torch.tensor(cayley_table("S3"))
    word = torch.randint(6, (2, 700, 150), generator=torch.Generator().manual_seed(0))
    found = prefix_products("S3", word)
    assert torch.equal(found[..., 1:], table[found[..., :-1], word[..., 1:]])
    assert torch.equal(found[..., 0], word[..., 0])
