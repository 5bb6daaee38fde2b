"""The mLSTM's n·q: its kernels' numbers in the interpreter, their code for sm_90."""

from __future__ import annotations

import pytest
import torch

from tests.kernels.checks import gradients_of, total
from tests.kernels.denominator import Setting, by_kernels, by_steps, compare
from tests.kernels.offline import reports_of

interpreted = pytest.mark.skipif(
    torch.cuda.is_available(), reason="the interpreter is off where there is a GPU"
)
HALF = torch.bfloat16


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@interpreted
@pytest.mark.parametrize(
    "setting",
    [
        Setting(),
        Setting(B=1, start=False),
        Setting(T=1, H=1, K=1),
        Setting(B=1, T=2, H=3, K=33),
        Setting(B=1, T=8, H=1, K=48, start=False),
        Setting(B=1, T=5, H=1, K=128),
        Setting(B=1, T=43, H=1, K=3),
    ],
    ids=str,
)
def test_numbers_in_float32(setting: Setting) -> None:
    compare(setting, setting.draw(), 1e-6)


@interpreted
def test_numbers_of_bfloat16_keys() -> None:
    setting = Setting(B=1, T=9, dtype=HALF)
    compare(setting, setting.draw(), 4e-3)


@interpreted
def test_keys_whose_last_axis_is_not_dense() -> None:
    setting = Setting(B=1, T=5)
    q, k, *rest = setting.draw()
    spread = [torch.stack((tensor, tensor), dim=-1)[..., 0] for tensor in (q, k)]
    compare(setting, [*spread, *rest], 1e-6)


@interpreted
@pytest.mark.parametrize("place", [0, 1], ids=["read", "last n"])
def test_gradients_through_one_output_alone(place: int) -> None:
    setting, found = Setting(B=1, T=9), []
    drawn = setting.draw()
    for run, dtype in ((by_kernels, torch.float32), (by_steps, torch.float64)):
        leaves = [tensor.to(dtype).requires_grad_() for tensor in drawn]
        loss = total(run(*leaves)[place : place + 1])
        found.append(torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-5, atol=1e-6)


@interpreted
def test_pieces_are_the_whole() -> None:
    *inputs, start = Setting(B=1, T=13).draw()
    whole, last = by_kernels(*inputs, start)
    one, between = by_kernels(*(tensor[:, :5] for tensor in inputs), start)
    two, after = by_kernels(*(tensor[:, 5:] for tensor in inputs), between)
    torch.testing.assert_close(torch.cat((one, two), dim=1), whole)
    torch.testing.assert_close(after, last)


@interpreted
@pytest.mark.parametrize("shared", [(), (0, 2, 4)], ids=["nothing", "query, forget gate, start"])
def test_lanes_are_lone_runs_whatever_they_share(shared: tuple[int, ...]) -> None:
    lanes = [Setting(B=1, T=3, H=2 - bool(shared)).draw() for _ in range(2)]
    leaves = [
        (tensors[0] if place in shared else torch.stack(tensors)).detach().requires_grad_()
        for place, tensors in enumerate(zip(*lanes, strict=True))
    ]
    places = tuple(None if place in shared else 0 for place in range(5))
    outputs = torch.func.vmap(by_kernels, in_dims=places)(*leaves)
    losses = [total([output[lane] for output in outputs]) for lane in range(2)]
    gradients = torch.autograd.grad(losses, leaves)
    alone = [
        gradients_of(
            by_kernels, [leaf if place in shared else leaf[lane] for place, leaf in enumerate(leaves)]
        )
        for lane in range(2)
    ]
    for place, (got, *wanted) in enumerate(zip([*outputs, *gradients], *alone, strict=True)):
        both = sum(wanted) if place - 2 in shared else torch.stack(wanted)
        torch.testing.assert_close(got, both, rtol=1e-6, atol=1e-6)


@interpreted
def test_lanes_without_a_start() -> None:
    lanes = [Setting(B=1, T=3, start=False).draw() for _ in range(2)]
    stacked = [torch.stack(tensors) for tensors in zip(*lanes, strict=True)]
    together = torch.func.vmap(by_kernels)(*stacked)
    for lane in range(2):
        for got, wanted in zip(together, by_kernels(*lanes[lane]), strict=True):
            assert torch.equal(got[lane], wanted)


@interpreted
@pytest.mark.parametrize("start", [True, False], ids=["start", "zeros"])
def test_torch_compile_traces_it_whole(start: bool) -> None:
    torch.compiler.reset()
    tensors = Setting(B=1, T=3, start=start).draw()
    compiled = torch.compile(by_kernels, backend="aot_eager", fullgraph=True)
    for one, other in zip(gradients_of(compiled, tensors), gradients_of(by_kernels, tensors), strict=True):
        torch.testing.assert_close(one, other)


@interpreted
@pytest.mark.slow
def test_the_operators_keep_torchs_rules() -> None:
    from statelab.kernels.mlstm.denominator import _forward

    q, k, log_f, log_i, start = (tensor.contiguous().requires_grad_() for tensor in Setting(B=1, T=3).draw())
    torch.library.opcheck(_forward, (q, k, log_f, log_i, start))
    torch.library.opcheck(_forward, (q, k, log_f, log_i, None))


def launch() -> None:
    gradients_of(by_kernels, Setting(T=33, K=48, start=False).draw())


def launch_others() -> None:
    for K, dtype in ((48, HALF), (47, HALF), (64, torch.float32), (7, torch.float32), (128, torch.float32)):
        gradients_of(by_kernels, Setting(T=33, K=K, dtype=dtype).draw())


def check_compiled(function: str) -> None:
    """No spills, no exchange between warps, and registers for three warps at once on a scheduler."""
    reports = reports_of(f"tests.kernels.test_denominator_kernel:{function}")
    assert {report["name"] for report in reports} == {"forward_kernel", "backward_kernel"}
    assert [report for report in reports if report["stack"] or report["shared"]] == []
    assert [report for report in reports if report["registers"] > 168] == []


def test_it_compiles_for_sm_90() -> None:
    check_compiled("launch")


@pytest.mark.slow
def test_other_sizes_compile_for_sm_90() -> None:
    check_compiled("launch_others")
