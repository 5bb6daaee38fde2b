"""The model around the mixers, and users' own layers in it."""

from __future__ import annotations

from typing import Any, Literal

import pytest
import torch

from statelab.models.backbone import Backbone
from statelab.models.build import build_mixer
from statelab.models.config import LayerConfig, ModelConfig
from tests.models.cases import leaves

OWN = "tests.models.own_layers"


def model(
    *mixers: str, mlp: float = 0.0, norm: Literal["layer", "rms"] = "layer", **options: Any
) -> Backbone:
    torch.manual_seed(0)
    layers = tuple(LayerConfig(mixer=mixer, options=options) for mixer in mixers)
    return Backbone(ModelConfig(layers=layers, width=8, mlp=mlp, norm=norm), vocab_size=5).double()


def tokens(time: int) -> torch.Tensor:
    return torch.randint(0, 5, (3, time), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("norm", ["layer", "rms"])
@pytest.mark.parametrize("mlp", [0.0, 1.5])
def test_pieces_are_the_whole(mlp: float, norm: Literal["layer", "rms"]) -> None:
    net = model("gru", "mlstm", "gru", mlp=mlp, norm=norm, heads=2)
    x = tokens(11)
    whole, last = net(x)
    assert whole.shape == (3, 11, 5)
    one, state = net(x[:, :4])
    two, after = net(x[:, 4:], state)
    torch.testing.assert_close(torch.cat((one, two), dim=1), whole)
    assert len(after) == 3
    for got, wanted in zip(leaves(after), leaves(last), strict=True):
        torch.testing.assert_close(got, wanted)


def test_state_size_adds_up_the_layers() -> None:
    net = model("gru", "mlstm")
    _, state = net(tokens(5))
    assert net.state_size == sum(leaf[0].numel() for leaf in leaves(state))
    assert model("gru", f"{OWN}:Shift").state_size is None


def test_it_is_what_its_docstring_says() -> None:
    """Embedding, x + mixer(norm x), x + MLP(norm x), norm, head, written out."""
    net = model("gru", mlp=2.0)
    x = net.embedding(tokens(7))
    layer = net.layers[0]
    x = x + layer.mixer(layer.norm(x))[0]  # type: ignore[operator]
    norm, mlp = layer.mlp  # type: ignore[misc]
    x = x + mlp.down(torch.nn.functional.gelu(mlp.up(norm(x))))
    torch.testing.assert_close(net(tokens(7))[0], net.head(net.norm(x)))
    assert mlp.up.out_features == 16


def test_embedding_and_head_start_as_torchs() -> None:
    torch.manual_seed(0)
    net = Backbone(ModelConfig(layers=(LayerConfig(mixer="gru"),), width=64), vocab_size=500)
    assert float(net.embedding.weight.detach().std()) == pytest.approx(1, rel=0.03)
    assert float(net.head.weight.detach().abs().max()) == pytest.approx(1 / 8, rel=0.01)
    assert not hasattr(net.head.weight, "no_weight_decay")
    assert not hasattr(net.embedding.weight, "no_weight_decay")
    assert getattr(net.head.bias, "no_weight_decay", False)


def test_a_stack_starts_with_smaller_outputs_than_a_layer() -> None:
    """mLSTM's down-projection is drawn for the number of layers: N(0, (2 / layers)² / D)."""
    one, four = (
        float(net.get_parameter("layers.0.mixer.down.weight").detach().std())
        for net in (model("mlstm"), model(*["mlstm"] * 4))
    )
    assert one / four == pytest.approx(4, rel=0.15)


def test_a_users_layer_needs_only_forward() -> None:
    net = model(f"{OWN}:Shift", gain=2.0)
    logits, state = net(tokens(6))
    assert logits.shape == (3, 6, 5)
    with pytest.raises(ValueError, match="reads whole sequences; to read in pieces it needs forward"):
        net(tokens(6), state)


def test_a_users_layer_with_a_state_reads_in_pieces() -> None:
    net = model(f"{OWN}:Sum")
    assert net.state_size == 8
    whole, _ = net(tokens(6))
    one, state = net(tokens(6)[:, :2])
    two, _ = net(tokens(6)[:, 2:], state)
    torch.testing.assert_close(torch.cat((one, two), dim=1), whole)


def test_a_users_layer_may_be_lifted_by_vmap() -> None:
    nets = [model(f"{OWN}:Shift"), model(f"{OWN}:Shift", gain=1.0)]
    with torch.no_grad():
        nets[1].head.weight.mul_(2)
    x = tokens(6)
    stacked, _ = torch.func.stack_module_state(nets)  # type: ignore[arg-type]
    logits, state = torch.func.vmap(lambda weights: torch.func.functional_call(nets[0], weights, (x,)))(
        stacked
    )
    torch.testing.assert_close(logits[1], nets[1](tokens(6))[0])
    assert leaves(state) == []


@pytest.mark.parametrize(
    ("mixer", "options", "message"),
    [
        ("no.such.module:Layer", {}, r"cannot import 'no.such.module' \(No module named 'no'\)"),
        (f"{OWN}:Nothing", {}, "module 'tests.models.own_layers' has no 'Nothing'"),
        (f"{OWN}:not_a_class", {}, "must be a class of torch.nn.Module"),
        (f"{OWN}:Shift", {"gian": 2.0}, "unexpected keyword argument 'gian'; its options: gain"),
        (f"{OWN}:Sum", {"gain": 2.0}, "unexpected keyword argument 'gain'; its options: none"),
        ("gru", {"head": 2}, "gru: unknown option 'head'; known: heads, .*Did you mean 'heads'"),
        ("grru", {}, "unknown mixer 'grru'; known: attention, gated_delta, .*Did you mean 'gru'"),
        ("gru", {"heads": 3}, "width 8 is not a multiple of 3 heads; set head_dim"),
        ("mamba2", {}, r"head_dim 64 does not divide the inner width expand \* width = 2 \* 8 = 16"),
    ],
)
def test_what_cannot_be_built_is_a_sentence(mixer: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_mixer(LayerConfig(mixer=mixer, options=options), 8)


def test_a_users_layer_of_another_width_is_named() -> None:
    with pytest.raises(ValueError, match=r"output must be \[B, T, D\] = \[3, 6, 8\], got \[3, 6, 7\]"):
        model(f"{OWN}:Narrow")(tokens(6))
