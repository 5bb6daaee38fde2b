"""Mixers and the models, populations and learners made of them.

The registry names each mixer's layer; its config is the class of the same name with `Config` behind it, in the
same file. Targets are strings so that listing and checking models does not import torch.
"""

MIXERS: dict[str, str] = {
    "attention": "statelab.models.attention:Attention",
    "gated_delta": "statelab.models.gated_delta:GatedDelta",
    "gated_delta_product": "statelab.models.gated_delta_product:GatedDeltaProduct",
    "gru": "statelab.models.gru:GRU",
    "m2rnn": "statelab.models.m2rnn:M2RNN",
    "mamba2": "statelab.models.mamba2:Mamba2",
    "mamba3": "statelab.models.mamba3:Mamba3",
    "mlstm": "statelab.models.mlstm:MLSTM",
    "rnn": "statelab.models.rnn:RNN",
}
