"""Mixers and the models, populations and learners made of them.

The registry names each mixer's layer; its config is the class of the same name with `Config` behind it, in the
same file. Targets are strings so that listing and checking models does not import torch.
"""

MIXERS: dict[str, str] = {
    "gated_delta": "statelab.models.gated_delta:GatedDelta",
    "gru": "statelab.models.gru:GRU",
    "mamba2": "statelab.models.mamba2:Mamba2",
    "mlstm": "statelab.models.mlstm:MLSTM",
}
