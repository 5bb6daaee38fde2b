"""The benchmark's inputs as other libraries take them, so that they compute the same function of them.

Each function gets the inputs of an op of `kernels.works` and gives a `Call`. What it does to them on the way (layout,
padding, other units) can be differentiated, so that gradients are compared too, and is not timed.
Legend: B rows, T time, J factors, H heads, K key width, V value width, P padded width, C channels, N = B·H.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F


def _same(output: Tensor) -> Tensor:
    return output


@dataclass(frozen=True)
class Call:
    """`finish(run(*inputs))` is the op's output; only `run` is timed, with the gradients of inputs and parameters."""

    inputs: Sequence[Tensor]
    run: Callable[..., Tensor]
    finish: Callable[[Tensor], Tensor] = _same
    parameters: Sequence[Tensor] = ()


Bind = Callable[[Sequence[Tensor]], Call]


def _function(module: str, name: str) -> Callable[..., Any]:
    found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return found


def fla_delta_rule(pad: int | None = None) -> Bind:
    """flash-linear-attention's gated delta rule; `pad` widens keys by zeros, which changes no output."""

    def bind(inputs: Sequence[Tensor]) -> Call:
        chunk = _function("fla.ops.gated_delta_rule", "chunk_gated_delta_rule")
        q_BTHK, k_BTHK, v_BTHV, decay_BTH, beta_BTH = inputs
        scale = q_BTHK.shape[-1] ** -0.5
        return Call(
            [_widened(q_BTHK, pad), _widened(k_BTHK, pad), v_BTHV, decay_BTH, beta_BTH],
            lambda q, k, v, g, beta: chunk(q=q, k=k, v=v, g=g, beta=beta, scale=scale)[0],
        )

    return bind


def fla_delta_product(pad: int | None = None) -> Bind:
    """flash-linear-attention's gated delta product: factors are steps in a row."""

    def bind(inputs: Sequence[Tensor]) -> Call:
        chunk = _function("fla.ops.gated_delta_product", "chunk_gated_delta_product")
        q_BTHK, k_BTJHK, v_BTJHV, decay_BTH, beta_BTJH = inputs
        how = {"num_householder": k_BTJHK.shape[2], "scale": q_BTHK.shape[-1] ** -0.5}
        in_a_row = [tensor.flatten(1, 2) for tensor in (_widened(k_BTJHK, pad), v_BTJHV)]
        return Call(
            [_widened(q_BTHK, pad), *in_a_row, decay_BTH, beta_BTJH.flatten(1, 2)],
            lambda q, k, v, g, beta: chunk(q=q, k=k, v=v, g=g, beta=beta, **how)[0],
        )

    return bind


def fla_simple_gla(pad: int | None = None) -> Bind:
    """flash-linear-attention's linear attention under a scalar gate: what Mamba-2 reads and writes are its q and k."""

    def bind(inputs: Sequence[Tensor]) -> Call:
        chunk = _function("fla.ops.simple_gla", "chunk_simple_gla")
        x_BTHP, decay_BTH, write_BTHN, read_BTHN = inputs
        return Call(
            [_widened(read_BTHN, pad), _widened(write_BTHN, pad), x_BTHP, decay_BTH],
            lambda q, k, v, g: chunk(q=q, k=k, v=v, g=g, scale=1.0)[0],
        )

    return bind


def fla_conv(inputs: Sequence[Tensor]) -> Call:
    """flash-linear-attention's short convolution, whose weight is `[C, J]`."""
    convolve = _function("fla.modules.causal_conv1d", "causal_conv1d")
    x_BTC, weight_JC = inputs
    return Call(
        [x_BTC, weight_JC.T.contiguous()],
        lambda x, weight: convolve(x=x, weight=weight, activation="silu", backend="triton")[0],
    )


def _widened(tensor: Tensor, width: int | None) -> Tensor:
    return tensor if width is None else F.pad(tensor, (0, width - tensor.shape[-1]))


def mamba2(inputs: Sequence[Tensor]) -> Call:
    """mamba_ssm's Mamba-2, with A = −1 and Δ = −log decay, by which it multiplies x itself; chunks as its layer's."""
    scan = _function("mamba_ssm.ops.triton.ssd_combined", "mamba_chunk_scan_combined")
    x_BTHP, decay_BTH, write_BTHN, read_BTHN = inputs
    step_BTH = -decay_BTH
    A_H = -torch.ones(x_BTHP.shape[2], device=x_BTHP.device)
    return Call(
        [(x_BTHP / step_BTH.unsqueeze(-1)).to(x_BTHP.dtype), step_BTH, write_BTHN, read_BTHN],
        lambda x, step, write, read: scan(x, step, A_H, write, read, chunk_size=256),
    )


def mamba3(inputs: Sequence[Tensor]) -> Call:
    """mamba_ssm's Mamba-3 with one rank: it takes weights before their sigmoid, angles as π tanh(·) Δ."""
    scan = _function("mamba_ssm.ops.triton.mamba3.mamba3_siso_combined", "mamba3_siso_combined")
    x_BT1HP, decay_BTH, step_BTH, weight_BTH, angle_BTHA, write_BT1HN, read_BT1HN = inputs
    x_BTHP, write_BTHN, read_BTHN = (part.squeeze(2) for part in (x_BT1HP, write_BT1HN, read_BT1HN))
    decay_BHT, step_BHT, weight_BHT = (
        part.transpose(1, 2).contiguous() for part in (decay_BTH, step_BTH, torch.logit(weight_BTH))
    )
    raw_BTHA = torch.atanh(angle_BTHA / (math.pi * step_BTH.unsqueeze(-1)))
    bias_HN = torch.zeros(write_BTHN.shape[2:], device=x_BTHP.device)
    return Call(
        [read_BTHN, write_BTHN, x_BTHP, decay_BHT, step_BHT, weight_BHT, raw_BTHA],
        lambda q, k, v, decay, step, weight, angle: scan(
            Q=q, K=k, V=v, ADT=decay, DT=step, Trap=weight, Q_bias=bias_HN, K_bias=bias_HN, Angles=angle
        ),
        lambda y_BTHP: y_BTHP.unsqueeze(2),
    )


def xl_chunk(inputs: Sequence[Tensor]) -> Call:
    """mlstm_kernels' chunkwise mLSTM, heads before time, widths padded to powers of two, as it wants them."""
    chunk = _function("mlstm_kernels.torch.chunkwise.triton_xl_chunk", "mlstm_chunkwise__xl_chunk")
    width = inputs[0].shape[-1]
    padded = max(16, 1 << (width - 1).bit_length())
    q_BHTP, k_BHTP, v_BHTP = (_widened(part.transpose(1, 2), padded).contiguous() for part in inputs[:3])
    gates_BHT = [part.transpose(1, 2).contiguous() for part in inputs[3:]]
    # It divides q by the root of the width it sees.
    return Call(
        [q_BHTP * (padded / width) ** 0.5, k_BHTP, v_BHTP, *gates_BHT],
        lambda q, k, v, i, f: chunk(q=q, k=k, v=v, i=i, f=f),
        lambda h_BHTP: h_BHTP[..., :width].transpose(1, 2),
    )


def cudnn_rnn(inputs: Sequence[Tensor]) -> Call:
    """torch.nn.RNN over rows and heads alike, time first; its product with the inputs is with the identity."""
    x_BTHK, weight_HKK = inputs
    width = x_BTHK.shape[-1]
    net = torch.nn.RNN(width, width, bias=False).to(x_BTHK.device, x_BTHK.dtype)
    with torch.no_grad():
        of_input, of_state = net.parameters()
        of_input.copy_(torch.eye(width))
        of_state.copy_(weight_HKK[0].T)
    return _by_time(net, x_BTHK)


def cudnn_gru(inputs: Sequence[Tensor]) -> Call:
    """torch.nn.GRU over rows and heads alike, time first."""
    x_BTHK = inputs[0]
    net = torch.nn.GRU(x_BTHK.shape[-1], x_BTHK.shape[-1], bias=False).to(x_BTHK.device, x_BTHK.dtype)
    return _by_time(net, x_BTHK)


def _by_time(net: torch.nn.RNNBase, x_BTHK: Tensor) -> Call:
    rows, _, heads, _ = x_BTHK.shape
    x_TNK = x_BTHK.transpose(0, 1).flatten(1, 2).contiguous()
    return Call(
        [x_TNK],
        lambda x: net(x)[0],
        lambda y_TNK: y_TNK.unflatten(1, (rows, heads)).transpose(0, 1),
        list(net.parameters()),
    )


def torch_conv(inputs: Sequence[Tensor]) -> Call:
    """torch's convolution by groups of one channel, in the layout it is fast in."""
    x_BTC, weight_JC = inputs
    taps = weight_JC.shape[0]

    def run(x_BCT: Tensor, weight_C1J: Tensor) -> Tensor:
        y_BCS = F.conv1d(x_BCT, weight_C1J, padding=taps - 1, groups=weight_C1J.shape[0])
        return F.silu(y_BCS[..., : x_BCT.shape[-1]])

    return Call(
        [x_BTC.transpose(1, 2).contiguous(), weight_JC.T.unsqueeze(1).contiguous()],
        run,
        lambda y_BCT: y_BCT.transpose(1, 2),
    )


def compiled_conv(inputs: Sequence[Tensor]) -> Call:
    """The plain torch form through torch.compile."""

    def run(x_BTC: Tensor, weight_JC: Tensor) -> Tensor:
        taps, time = weight_JC.shape[0], x_BTC.shape[1]
        past_BSC = F.pad(x_BTC, (0, 0, taps - 1, 0))
        parts = [past_BSC[:, tap : tap + time] * weight_JC[tap] for tap in range(taps)]
        return F.silu(torch.stack(parts).sum(dim=0))

    return Call(list(inputs), torch.compile(run))


def plain(run: Callable[..., Tensor]) -> Bind:
    """A function of the op's own inputs."""
    return lambda inputs: Call(list(inputs), run)
