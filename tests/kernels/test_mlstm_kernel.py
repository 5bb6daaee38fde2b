"""The Triton mLSTM against the float64 reference: output, last state and every gradient."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from statelab.kernels.mlstm import mlstm
from tests.kernels.cases import assert_near, draw_mlstm, run_mlstm, weighted, with_gradients
from tests.kernels.mlstm import PROGRAMS, TOLERANCES, compare, draw
from tests.kernels.offline import MAXIMUM_SHARED, reports_of
from tests.kernels.recurrent import poisoned


@pytest.fixture(autouse=True)
def _device() -> Iterator[None]:
    """The GPU where there is one: the interpreter is only on where there is none."""
    torch.manual_seed(0)
    torch.set_default_device("cuda" if torch.cuda.is_available() else "cpu")
    yield
    torch.set_default_device(None)


@PROGRAMS
@pytest.mark.parametrize("normaliser", [True, False], ids=["normalised", "raw"])
def test_it_is_the_reference(normaliser: bool, programs: str) -> None:
    """66 steps are a chunk of 64, or two of 32, and a bit; no tile has these widths."""
    compare(draw(66, 9, 7, heads=2, rows=1), 2e-5, normaliser=normaliser, programs=programs)


@PROGRAMS
def test_sixteen_bit_inputs_are_products_of_sixteen_bits(programs: str) -> None:
    inputs = draw(35, 9, 7, heads=1, rows=1)
    compare(inputs, TOLERANCES["bf16"], torch.bfloat16, programs=programs)
    half = [tensor.bfloat16() for tensor in inputs[:5]]
    h, state = mlstm(*half, backend="triton", programs=programs)  # type: ignore[arg-type, misc]
    assert h.dtype == torch.bfloat16
    assert {part.dtype for part in state} == {torch.float32}


@PROGRAMS
def test_without_a_state_and_with_part_of_the_gradients(programs: str) -> None:
    """In 35 steps, since a sequence's program keeps no zeros of the first of its chunks."""
    time = 35 if programs == "sequences" else 3
    inputs = [tensor.float().requires_grad_() for tensor in draw(time, 9, 7, heads=1, rows=1)[:5]]
    for place in (0, 1, 3):
        gradients = []
        for backend in ("triton", "reference"):
            with poisoned():
                outputs = run_mlstm(programs=programs)([*inputs, None, None, None], backend)
                loss = weighted([outputs[place]])
                gradients.append(torch.autograd.grad(loss, inputs, allow_unused=True, materialize_grads=True))
        assert_near(gradients[0], gradients[1], 2e-5)


@PROGRAMS
@pytest.mark.parametrize("gates", ["input gates of 30", "input gates of -30", "forget gates of 40"])
def test_gates_far_out(gates: str, programs: str) -> None:
    """The eps of the denominator and its floor decide here, and m has a gradient of its own."""
    inputs = draw(4, 9, 7, heads=1, rows=1)
    inputs[3 if "input" in gates else 4] += float(gates.split()[-1])
    compare(inputs, 2e-5, programs=programs)


@PROGRAMS
def test_lanes_under_vmap_are_lone_runs(programs: str) -> None:
    run = run_mlstm(programs=programs)
    lanes = [[tensor.float() for tensor in draw(3, 9, 7, heads=1, rows=1)] for _ in range(2)]
    stacked = [torch.stack(tensors).requires_grad_() for tensors in zip(*lanes, strict=True)]
    together = torch.func.vmap(lambda *tensors: run(tensors, "triton"))(*stacked)
    loss = torch.stack([weighted([output[lane] for output in together]) for lane in range(2)]).sum()
    gradients = torch.autograd.grad(loss, stacked)
    for lane in range(2):
        got = [tensor[lane] for tensor in (*together, *gradients)]
        assert_near(got, with_gradients(run, lanes[lane], "triton"), tolerance=1e-6)


def test_many_sequences_have_a_program_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lanes count; a backward of more rows than its forward, for several gradients at once, is still of its kind."""
    from statelab.kernels.mlstm import tiles, tiles_launch, walk

    walks: list[bool] = []
    for form in (tiles_launch, walk):
        for name in ("forward", "backward"):
            run = getattr(form, name)

            def noting(*args: Any, run: Any = run, form: Any = form, **options: Any) -> None:
                walks.append(form is walk)
                run(*args, **options)

            monkeypatch.setattr(form, name, noting)
    rule = walk.pays
    monkeypatch.setattr(walk, "pays", lambda sequences, *_: sequences >= 4)
    inputs = [tensor.float() for tensor in draw(3, 9, 7, heads=2, rows=1)]
    lifted = torch.func.vmap(lambda *tensors: run_mlstm()(tensors, "triton"))
    lifted(*(torch.stack([tensor] * 2) for tensor in inputs))
    h, *last, C, n, m, nq = tiles.forward(*inputs, True, "bf16x6", "auto")

    def pull(dh: Tensor) -> Any:
        kept = (C, n, m, nq, *last[:2])
        return tiles.backward(*inputs[:5], *kept, dh, None, None, None, True, True, "bf16x6")

    both = torch.stack([torch.ones_like(h), h])
    together = torch.func.vmap(pull)(both)
    assert walks == [True, False, False]
    for place in range(2):
        assert_near([gradient[place] for gradient in together], pull(both[place]), 1e-6)
    monkeypatch.setattr(walk, "pays", rule)
    monkeypatch.setattr(walk, "SEQUENCES", 4)
    wide = [tensor.float() for tensor in draw(1, 33, 7, rows=2)[:5]]
    mlstm(*wide, backend="triton", precision="tf32")  # type: ignore[arg-type, misc]
    mlstm(*wide, backend="triton", precision="bf16")  # type: ignore[arg-type, misc]
    assert walks[-2:] == [False, True]


def test_what_it_cannot_do_is_said() -> None:
    inputs = [tensor.float() for tensor in draw_mlstm(3)[:5]]
    with pytest.raises(ValueError, match="adds only, got write 'delta'"):
        mlstm(*inputs, write="delta", backend="triton")  # type: ignore[arg-type, misc]
    with pytest.raises(ValueError, match="iterates, got factor 'polar'"):
        mlstm(*inputs, read="orthogonal", factor="polar", backend="triton")  # type: ignore[arg-type, misc]
    wide = [tensor.float() for tensor in draw(2, 130, 7)[:5]]
    with pytest.raises(ValueError, match="takes head widths up to 128, got K 130, V 7"):
        mlstm(*wide, backend="triton")  # type: ignore[arg-type, misc]
    wide = [tensor.float() for tensor in draw(2, 65, 7)[:5]]
    with pytest.raises(ValueError, match="owns sequences of head widths up to 64, got K 65, V 7"):
        mlstm(*wide, backend="triton", programs="sequences")  # type: ignore[arg-type, misc]
    with pytest.raises(ValueError, match="programs must be 'auto', 'chunks' or 'sequences', got 'steps'"):
        mlstm(*inputs, programs="steps")  # type: ignore[arg-type, misc]
    with pytest.raises(ValueError, match="computes in float32, and got float64"):
        mlstm(*draw_mlstm(3)[:5], backend="triton")  # type: ignore[arg-type, misc]


def _launch(K: int, V: int, precision: str, programs: str) -> None:
    from statelab.kernels.mlstm import tiles

    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    q, v, gate = (
        torch.zeros(2, 128, 4, K, dtype=dtype),
        torch.zeros(2, 128, 4, V, dtype=dtype),
        torch.zeros(2, 128, 4),
    )
    h, C, n, _, *kept = tiles.forward(q, q, v, gate, gate, None, None, None, True, precision, programs)
    tiles.backward(q, q, v, gate, gate, *kept, C, n, h, None, None, None, False, True, precision)


def launch() -> None:
    for programs in ("chunks", "sequences"):
        _launch(48, 48, "bf16", programs)


def launch_narrow() -> None:
    for width in (16, 32):
        for precision in ("bf16", "tf32", "bf16x3", "bf16x6"):
            _launch(width, width, precision, "chunks")


def launch_wide() -> None:
    for width in (64, 128):
        for precision in ("bf16", "tf32", "bf16x6"):
            _launch(width, width, precision, "chunks")


def launch_sequences() -> None:
    for width, precisions in ((16, ("bf16", "tf32")), (32, ("bf16", "tf32", "bf16x6")), (64, ("bf16",))):
        for precision in precisions:
            _launch(width, width, precision, "sequences")


def test_sixteen_bit_products_do_not_spill_on_sm_90() -> None:
    reports = reports_of("tests.kernels.test_mlstm_kernel:launch")
    assert len(reports) == 5 + 2
    for report in reports:
        assert report["stack"] == 0, report
        assert report["shared"] <= MAXIMUM_SHARED, report


@pytest.mark.slow
def test_narrow_heads_hardly_spill_on_sm_90() -> None:
    reports = reports_of("tests.kernels.test_mlstm_kernel:launch_narrow")
    assert len(reports) == 40
    for report in reports:
        assert report["stack"] <= (32 if "states" in report["name"] else 0), report
        assert report["shared"] <= MAXIMUM_SHARED, report


@pytest.mark.slow
def test_sequences_spill_within_bounds_on_sm_90() -> None:
    """Of the backward at width 32 what `walk.configuration` says; a warp's shared memory leaves room for 20 others."""
    reports = reports_of("tests.kernels.test_mlstm_kernel:launch_sequences")
    assert len(reports) == 12
    for report in reports:
        assert report["stack"] <= (416 if "gradient" in report["name"] else 160), report
        assert report["shared"] <= MAXIMUM_SHARED // (20 if report["warps"] < 4 else 8), report


@pytest.mark.slow
def test_wide_heads_fit_on_sm_90() -> None:
    reports = reports_of("tests.kernels.test_mlstm_kernel:launch_wide")
    assert len(reports) == 30
    assert max(report["shared"] for report in reports) <= MAXIMUM_SHARED
