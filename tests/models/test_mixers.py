"""The contract of every mixer of the registry: causal, readable in pieces, lifted by vmap, counted."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from statelab.models import MIXERS
from tests.models.cases import SETTINGS, Setting, leaves, stir

each_setting = pytest.mark.parametrize("setting", SETTINGS, ids=str)


def draw(setting: Setting, time: int, seed: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, time, setting.width, dtype=torch.float64, generator=generator)


def test_every_mixer_is_tested() -> None:
    assert {setting.mixer for setting in SETTINGS} == set(MIXERS)


@each_setting
def test_shape_and_dtype_are_the_inputs(setting: Setting) -> None:
    for time in (1, 37):
        y, _ = setting.build()(draw(setting, time))
        assert y.shape == (2, time, setting.width)
        assert y.dtype == torch.float64


@each_setting
def test_outputs_do_not_see_the_future(setting: Setting) -> None:
    layer, x = stir(setting.build()), draw(setting, 37)
    changed = torch.cat((x[:, :20], draw(setting, 17, seed=4)), dim=1)
    one, other = layer(x)[0], layer(changed)[0]
    torch.testing.assert_close(one[:, :20], other[:, :20], rtol=0, atol=1e-12)
    assert (one[:, 20:] - other[:, 20:]).abs().amin(dim=-1).max() > 1e-6


@each_setting
def test_outputs_remember_the_first_input(setting: Setting) -> None:
    layer, x = stir(setting.build()), draw(setting, 12)
    changed = x.clone()
    changed[:, 0] += 1
    assert (layer(x)[0][:, -1] - layer(changed)[0][:, -1]).abs().max() > 1e-12


@each_setting
@pytest.mark.parametrize("cuts", [(1, 2), (2, 30), (36,)], ids=str)
def test_pieces_are_the_whole(setting: Setting, cuts: tuple[int, ...]) -> None:
    layer, x = stir(setting.build()), draw(setting, 37)
    whole, last = layer(x)
    pieces, state = [], None
    for start, stop in zip((0, *cuts), (*cuts, 37), strict=True):
        piece, state = layer(x[:, start:stop], state)
        pieces.append(piece)
    torch.testing.assert_close(torch.cat(pieces, dim=1), whole, rtol=1e-9, atol=1e-11)
    for got, wanted in zip(leaves(state), leaves(last), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-9, atol=1e-11)


@each_setting
def test_gradients_flow_through_the_state(setting: Setting) -> None:
    """The gradient of the second piece's output for the first piece's input is the whole's."""
    layer, x = stir(setting.build()), draw(setting, 10).requires_grad_()
    _, state = layer(x[:, :6])
    (cut,) = torch.autograd.grad(layer(x[:, 6:], state)[0].square().sum(), x)
    (whole,) = torch.autograd.grad(layer(x)[0][:, 6:].square().sum(), x)
    assert whole[:, 0].abs().max() > 0
    torch.testing.assert_close(cut, whole, rtol=1e-8, atol=1e-12)


@each_setting
def test_state_size_counts_the_floats_carried(setting: Setting) -> None:
    layer = setting.build()
    for time in (1, 9):
        _, state = layer(draw(setting, time))
        assert layer.state_size in (None, sum(leaf[0].numel() for leaf in leaves(state)))
        assert {leaf.shape[0] for leaf in leaves(state)} == {2}


@each_setting
def test_every_parameter_receives_a_gradient(setting: Setting) -> None:
    layer = stir(setting.build())
    layer(draw(setting, 9))[0].square().sum().backward()
    for name, parameter in layer.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name
        assert parameter.grad.abs().max() > 1e-9, name


@each_setting
def test_lanes_under_vmap_are_lone_layers(setting: Setting) -> None:
    """Three layers of their own weights and inputs; outputs, states and every gradient."""
    layers = [setting.build(seed) for seed in range(3)]
    x = torch.stack([draw(setting, 11, seed) for seed in range(3)])
    stacked, _ = torch.func.stack_module_state(layers)

    def run(weights: dict[str, Tensor], x: Tensor) -> tuple[Tensor, object]:
        answer: tuple[Tensor, object] = torch.func.functional_call(layers[0], weights, (x,))
        return answer

    y, state = torch.func.vmap(run)(stacked, x)
    gradients = torch.autograd.grad(y.square().sum(), list(stacked.values()))
    for lane, layer in enumerate(layers):
        alone, last = layer(x[lane])
        wanted = torch.autograd.grad(alone.square().sum(), list(layer.parameters()))
        torch.testing.assert_close(y[lane], alone, rtol=1e-12, atol=1e-12)
        for got, leaf in zip(leaves(state), leaves(last), strict=True):
            torch.testing.assert_close(got[lane], leaf, rtol=1e-12, atol=1e-12)
        for got, gradient in zip(gradients, wanted, strict=True):
            torch.testing.assert_close(got[lane], gradient, rtol=1e-10, atol=1e-11)


@each_setting
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_states_are_float32_or_wider(setting: Setting, dtype: torch.dtype) -> None:
    layer = setting.build(dtype=dtype)
    x = draw(setting, 9).to(dtype)
    y, state = layer(x)
    again, _ = layer(x, state)
    assert y.dtype == again.dtype == dtype
    assert {leaf.dtype for leaf in leaves(state)} == {torch.float32}


@each_setting
def test_sixteen_bits_are_near_float64(setting: Setting) -> None:
    rounded = setting.build(dtype=torch.bfloat16)
    wide = setting.build(dtype=torch.bfloat16).double()
    x = draw(setting, 9).bfloat16()
    error = (rounded(x)[0].double() - wide(x.double())[0]).norm() / wide(x.double())[0].norm()
    assert error < 0.1


def no_decay(layer: nn.Module) -> set[str]:
    marked = (name for name, value in layer.named_parameters() if getattr(value, "no_weight_decay", False))
    return set(marked)


def test_a_state_that_grows_has_no_size() -> None:
    growing = {setting.mixer for setting in SETTINGS if setting.build().state_size is None}
    assert growing == {"attention"}


@pytest.mark.parametrize(
    ("mixer", "names"),
    [
        ("attention", set()),
        ("gated_delta", {"A_log", "dt_bias", "norm.weight"}),
        ("gated_delta_product", {"A_log", "dt_bias", "norm.weight"}),
        ("gru", {"weight", "reset_weight", "forget_weight", "conv.bias", "norm.weight"}),
        ("m2rnn", {"A_log", "dt_bias", "D", "norm.weight"}),
        ("mamba2", {"A_log", "dt_bias", "D", "conv.bias", "norm.weight"}),
        ("mamba3", {"dt_bias", "D", "B_bias", "C_bias", "B_norm.weight", "C_norm.weight"}),
        ("mlstm", {"gates.weight", "gates.bias", "skip", "conv.bias", "norm.weight"}),
        ("rnn", {"weight", "norm.weight"}),
    ],
)
def test_what_takes_no_weight_decay_is_marked(mixer: str, names: set[str]) -> None:
    setting = next(setting for setting in SETTINGS if setting.mixer == mixer)
    assert no_decay(setting.build()) == names
