"""Parameters of NX-AI's xlstm, as its `mLSTMLayer` names them, for the mLSTM layer here.

| xlstm 2.0 (`mLSTMLayer.state_dict()`) | shape | here |
|---|---|---|
| `proj_up.weight` | [2I, D] | `up.weight` |
| `conv1d.conv.weight`, `.bias` | [I, 1, taps], [I] | `conv.weight` [taps, I], `conv.bias` |
| `q_proj.weight`, `k_proj.weight`, `v_proj.weight` | [I / b, b, b] | `q.weight`, `k.weight`, `v.weight` |
| `mlstm_cell.igate.weight`, `.bias` | [H, 3I], [H] | the first H rows of `gates` |
| `mlstm_cell.fgate.weight`, `.bias` | [H, 3I], [H] | the last H rows of `gates` |
| `mlstm_cell.outnorm.weight` | [I], stored as weight − 1 | `norm.weight` [H, I / H] |
| `learnable_skip` | [I] | `skip` |
| `proj_down.weight` | [D, I] | `down.weight` |
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from statelab.models.mlstm import MLSTM

SAME = {
    "proj_up.weight": "up.weight",
    "q_proj.weight": "q.weight",
    "k_proj.weight": "k.weight",
    "v_proj.weight": "v.weight",
    "conv1d.conv.bias": "conv.bias",
    "learnable_skip": "skip",
    "proj_down.weight": "down.weight",
}
CONV, NORM = "conv1d.conv.weight", "mlstm_cell.outnorm.weight"
GATES = ("mlstm_cell.igate.", "mlstm_cell.fgate.")


def load_xlstm(layer: MLSTM, state_dict: Mapping[str, Tensor], prefix: str = "") -> None:
    """Give `layer` the parameters of an xlstm `mLSTMLayer`, for example `prefix="xlstm.blocks.0.xlstm."`.

    Entries of `state_dict` whose names do not start with `prefix` are not looked at. The layer must be an xlstm
    block with a convolution, built for the same width; its read and write may be any. Raises ValueError, naming
    them, for parameters that are missing, that there is no place for (xlstm's `bias=True`), or that have other
    shapes.
    """
    if layer.plain or layer.conv is None:
        raise ValueError("load_xlstm: the layer must have block = 'xlstm' and a convolution, as xlstm's has")
    given = {name[len(prefix) :]: value for name, value in state_dict.items() if name.startswith(prefix)}
    known = {*SAME, CONV, NORM, *(gate + part for gate in GATES for part in ("weight", "bias"))}
    if missing := sorted(known - given.keys()):
        raise ValueError(f"load_xlstm: missing under prefix {prefix!r}: {', '.join(missing)}")
    if extra := sorted(given.keys() - known):
        raise ValueError(f"load_xlstm: no place for {', '.join(extra)}; xlstm's layer must have bias=False")
    made = {ours: given[theirs] for theirs, ours in SAME.items()}
    made["conv.weight"] = given[CONV].squeeze(1).T
    made["norm.weight"] = 1 + given[NORM]
    for part in ("weight", "bias"):
        made[f"gates.{part}"] = torch.cat([given[gate + part] for gate in GATES])
    own = {name: parameter.detach() for name, parameter in layer.named_parameters()}
    own["norm.weight"] = own["norm.weight"].flatten()
    for name, value in made.items():
        if value.shape != own[name].shape:
            raise ValueError(f"load_xlstm: {name} must be {list(own[name].shape)}, got {list(value.shape)}")
    for name, value in made.items():
        own[name].copy_(value)
