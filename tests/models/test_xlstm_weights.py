"""Parameters by xlstm's names, and, where the package is installed, its layer's own answers."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from statelab.models.mlstm import MLSTM, MLSTMConfig
from statelab.models.xlstm_weights import load_xlstm

WIDTH, INNER, HEADS = 12, 64, 4


def parameters() -> dict[str, Tensor]:
    """What an mLSTMLayer of width 12 holds, as its state_dict names it."""
    torch.manual_seed(0)
    shapes = {
        "proj_up.weight": (2 * INNER, WIDTH),
        **{f"{name}_proj.weight": (INNER // 4, 4, 4) for name in "qkv"},
        "conv1d.conv.weight": (INNER, 1, 4),
        "conv1d.conv.bias": (INNER,),
        **{f"mlstm_cell.{name}gate.weight": (HEADS, 3 * INNER) for name in "if"},
        **{f"mlstm_cell.{name}gate.bias": (HEADS,) for name in "if"},
        "mlstm_cell.outnorm.weight": (INNER,),
        "learnable_skip": (INNER,),
        "proj_down.weight": (WIDTH, INNER),
    }
    return {name: 0.3 * torch.randn(shape, dtype=torch.float64) for name, shape in shapes.items()}


def by_hand(given: dict[str, Tensor], x: Tensor) -> Tensor:
    """The layer on one row, from xlstm's names alone: arXiv 2405.04517, eq. 19-27, step by step, unstabilised."""
    up = x @ given["proj_up.weight"].T
    u, z = up[:, :INNER], up[:, INNER:]
    past = torch.cat((torch.zeros(3, INNER), u))
    taps = given["conv1d.conv.weight"][:, 0].T
    c = torch.stack([(past[t : t + 4] * taps).sum(0) for t in range(len(x))]) + given["conv1d.conv.bias"]
    c = F.silu(c)
    q, k, v = (
        (given[f"{name}_proj.weight"] @ source.view(len(x), -1, 4, 1)).flatten(1)
        for name, source in (("q", c), ("k", c), ("v", u))
    )
    gates = [
        torch.cat((q, k, v), dim=1) @ given[f"mlstm_cell.{name}gate.weight"].T
        + given[f"mlstm_cell.{name}gate.bias"]
        for name in "if"
    ]
    heads = []
    for head in range(HEADS):
        own = slice(16 * head, 16 * head + 16)
        C, n = torch.zeros(16, 16, dtype=torch.float64), torch.zeros(16, dtype=torch.float64)
        rows = []
        for t in range(len(x)):
            add, keep = gates[0][t, head].exp(), torch.sigmoid(gates[1][t, head])
            C = keep * C + add * torch.outer(v[t, own], k[t, own]) / 4
            n = keep * n + add * k[t, own] / 4
            rows.append(C @ q[t, own] / max(float((n @ q[t, own]).abs()), 1.0))
        heads.append(F.layer_norm(torch.stack(rows), (16,)))
    h = torch.cat(heads, dim=1) * (1 + given["mlstm_cell.outnorm.weight"])
    return ((h + given["learnable_skip"] * c) * F.silu(z)) @ given["proj_down.weight"].T


def test_a_loaded_layer_answers_as_xlstms_names_say() -> None:
    given = parameters()
    layer = MLSTM(MLSTMConfig(), WIDTH).double()
    load_xlstm(
        layer,
        {f"block.{name}": value for name, value in given.items()} | {"x": given["q_proj.weight"]},
        "block.",
    )
    x = torch.randn(2, 20, WIDTH, dtype=torch.float64)
    wanted = torch.stack([by_hand(given, row) for row in x])
    # The norm of each head divides by sizes down to 0.01, which magnifies the denominator's eps of 1e-6.
    torch.testing.assert_close(layer(x)[0], wanted, rtol=0, atol=1e-4)


def test_what_does_not_fit_is_named() -> None:
    layer = MLSTM(MLSTMConfig(), WIDTH).double()
    given = parameters()
    without = {name: value for name, value in given.items() if name != "learnable_skip"}
    with pytest.raises(ValueError, match="missing under prefix '': learnable_skip"):
        load_xlstm(layer, without)
    with pytest.raises(ValueError, match=r"no place for proj_up\.bias; xlstm's layer must have bias=False"):
        load_xlstm(layer, given | {"proj_up.bias": given["learnable_skip"]})
    with pytest.raises(ValueError, match=r"up.weight must be \[128, 16\], got \[128, 12\]"):
        load_xlstm(MLSTM(MLSTMConfig(), 16), given)
    with pytest.raises(ValueError, match=r"norm.weight must be \[64\], got \[3\]"):
        load_xlstm(layer, given | {"mlstm_cell.outnorm.weight": torch.zeros(3)})
    for options in (MLSTMConfig(block="plain"), MLSTMConfig(conv=0)):
        with pytest.raises(ValueError, match="must have block = 'xlstm' and a convolution"):
            load_xlstm(MLSTM(options, WIDTH), given)


def test_nothing_is_loaded_of_what_does_not_fit() -> None:
    layer = MLSTM(MLSTMConfig(), WIDTH).double()
    before = {name: value.clone() for name, value in layer.state_dict().items()}
    with pytest.raises(ValueError, match="skip must be"):
        load_xlstm(layer, parameters() | {"learnable_skip": torch.zeros(3)})
    for name, value in layer.state_dict().items():
        assert torch.equal(value, before[name])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("width", [30, 94])
def test_the_packages_own_layer(width: int, dtype: torch.dtype) -> None:
    theirs = pytest.importorskip(
        "xlstm.blocks.mlstm.layer", reason="compares with NX-AI's xlstm, which is not installed"
    )
    torch.manual_seed(0)
    peer = theirs.mLSTMLayer(theirs.mLSTMLayerConfig(embedding_dim=width, context_length=130)).to(dtype)
    with torch.no_grad():
        for parameter in peer.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    layer = MLSTM(MLSTMConfig(), width).to(dtype)
    load_xlstm(layer, peer.state_dict())
    x = torch.randn(2, 130, width, dtype=dtype)
    wanted = peer(x)
    assert (layer(x)[0] - wanted).abs().max() <= 1e-5 * wanted.abs().max()
