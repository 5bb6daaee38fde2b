"""How fast the kernels are, beside plain torch and their peers on the same inputs, with their errors.

Legend: B rows, T time, H heads, d head width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from statelab.kernels.adapters import Call
from statelab.kernels.contract import HAS_TRITON
from statelab.kernels.peers import CONFIGURATIONS, PEERS, Peer
from statelab.kernels.timing import Timed, ceilings, measure, peak
from statelab.kernels.works import Shape, Work, traffic, work_of

ROWS_COMPARED = 1
"""Rows whose outputs and gradients are compared with float64's."""

WRONG = 0.1
"""An error of gradients beyond what any rounding makes."""

PEER_SHAPES = ("", "d32", "d16", "T256", "T256,d32")
"""Where peers are compared, as changes of an op's own shape."""

DTYPES = {"bf16": torch.bfloat16, "float32": torch.float32}
PRECISIONS = {"bf16": ("bf16",), "float32": ("bf16", "tf32", "bf16x3", "bf16x6")}
PEER_PRECISION = {"bf16": ("bf16",), "float32": ("tf32",)}
"""What the kernels' products are made in if nothing else is asked for: beside peers, what theirs are made in."""

HEADER = (
    f"{'':2s}{'':29s} {'products':9s} {'forward ms':>10s} {'+ backward':>10s} {'of ours':>12s} {'GiB':>6s} "
    f"{'error':>8s} {'gradients':>9s} {'TFLOP/s':>8s} {'TB/s':>6s} clock"
)


@dataclass
class _Case:
    """An op at one shape: its inputs, float64's answer, and the kernel's times once there are some."""

    name: str
    work: Work
    shape: Shape
    inputs: list[Tensor]
    weight: Tensor = field(init=False)
    ours: tuple[Timed, Timed] | None = None
    answers: dict[Any, tuple[Tensor, tuple[Tensor, ...]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        output, _ = self.exact(backward=False)
        sizes = (self.shape.B, *output.shape[1:])
        self.weight = torch.randn(sizes, device=output.device).to(self.inputs[0].dtype)

    @property
    def device(self) -> torch.device:
        return self.inputs[0].device

    def exact(
        self, tail: Callable[[Tensor], Tensor] | None = None, backward: bool = True
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Output and gradients along time of the first rows, by the definition in float64."""
        along = len(self.inputs) - self.work.weights
        rows = [tensor[:ROWS_COMPARED] for tensor in self.inputs[:along]]
        wide = [tensor.double().requires_grad_(backward) for tensor in [*rows, *self.inputs[along:]]]
        output = self.work.run(*wide, backend="reference")
        output = tail(output) if tail else output
        if not backward:
            return output.detach(), ()
        gradients = torch.autograd.grad(output, wide[:along], self.weight[:ROWS_COMPARED].double())
        return output.detach(), gradients


def lines(
    device: torch.device,
    names: Sequence[str],
    *,
    shapes: Sequence[str] = (),
    dtype: str = "float32",
    precisions: Sequence[str] = (),
    kernels: Sequence[str] = (),
    peers: bool = False,
    lanes: int | None = None,
) -> Iterator[str]:
    """A table's lines as they are made: each op by its kernel, by plain torch and by its peers, times and errors.

    `shapes` are changes of an op's own ("T256,d32"); with `peers` those of PEER_SHAPES if none are given, and plain
    torch at the first of them alone. Errors are medians over steps of ‖error‖ / ‖float64‖: of the output, and the
    worst of the gradients along time. `kernels` are backends of the op, to the first of which peers are compared.
    `lanes`: that many of the same run as one, against one of them.
    Raises ValueError for unknown names, dtypes and shapes.
    """
    works = [work_of(name) for name in names]
    if dtype not in DTYPES:
        raise ValueError(f"bench kernels: unknown dtype {dtype!r}; known: {', '.join(DTYPES)}")
    changes = list(shapes) or (list(PEER_SHAPES) if peers else [""])
    sizes = [[work.shape.changed(change) for change in changes] for work in works]
    default = PEER_PRECISION if peers or lanes else PRECISIONS
    yield _title(device, dtype) + f"; peers' kernels try {CONFIGURATIONS} configurations each" * peers
    yield HEADER
    for name, work, of_work in zip(names, works, sizes, strict=True):
        for place, shape in enumerate(of_work):
            torch.manual_seed(0)
            case = _Case(name, work, shape, work.inputs(shape, DTYPES[dtype], device))
            yield f"{name}: {shape}, {dtype} inputs"
            named = (kernels or ("triton",)) if device.type == "cuda" and HAS_TRITON else ()
            ways = [(kernel, p) for kernel in named for p in precisions or default[dtype]]
            if lanes:
                yield _lanes_line(case, *(ways or [(work.plain, "")])[0], lanes)
                continue
            for backend, precision in ways:
                yield _own_line(case, backend, precision)
            if not (peers and place):
                yield _own_line(case, work.plain, "")
            for peer in PEERS.get(name, ()) if peers else ():
                if peer.fits(shape) and DTYPES[dtype] in peer.dtypes:
                    yield _peer_line(case, peer)


def _title(device: torch.device, dtype: str) -> str:
    if device.type != "cuda":
        return f"CPU, {torch.get_num_threads()} threads; torch {torch.__version__}; {dtype} inputs"
    name = torch.cuda.get_device_name(device)
    return f"{name}; torch {torch.__version__}; here at most {ceilings(device)}"


def _own_line(case: _Case, backend: str, precision: str) -> str:
    options = case.work.options(backend, precision)
    call = Call(case.inputs, lambda *inputs: case.work.run(*inputs, **options))
    try:
        cells, times, _ = _cells(
            case, lambda inputs: Call(inputs, call.run), capture=backend != case.work.plain
        )
    except (ValueError, RuntimeError) as error:
        return _row(backend, precision or "float32", _brief(error))
    if case.ours is None:
        case.ours = times
    return _row(backend, precision or "float32", cells)


def _peer_line(case: _Case, peer: Peer) -> str:
    products = "tf32" if peer.tf32 else "" if peer.module else "torch's"
    try:
        with peer.settings():
            cells, _, wrong = _cells(case, peer.call, same=peer.same, tail=peer.tail)
    except Exception as error:  # Another library's errors are of any kind, and none may end the table.
        return _row(peer.title, products, _brief(error))
    remarks = ("gradients are wrong: its times are no measure" if wrong else "", peer.remark)
    return _row(peer.title, products, f"{cells}  {'; '.join(filter(None, remarks))}")


def _lanes_line(case: _Case, backend: str, precision: str, lanes: int) -> str:
    options = case.work.options(backend, precision)

    def run(*inputs: Tensor) -> Tensor:
        return case.work.run(*inputs, **options)

    title, products = f"{backend}, {lanes} lanes", precision or "float32"
    stacked = [torch.stack([tensor] * lanes) for tensor in case.inputs]
    try:
        one = _times(Call(case.inputs, run), case.device, capture=True)
        many = _times(Call(stacked, torch.func.vmap(run)), case.device, capture=True)
    except (ValueError, RuntimeError) as error:
        return _row(title, products, _brief(error))
    ratio = many[1].milliseconds / one[1].milliseconds
    times = f"{many[0].milliseconds:10.3f} {many[1].milliseconds:10.3f}"
    return _row(
        title,
        products,
        f"{times}  {ratio:.1f} × the time of one ({one[1].milliseconds:.3f} ms), {lanes} × its work",
    )


def _cells(
    case: _Case, bind: Callable[[Sequence[Tensor]], Call], *, capture: bool = True, same: bool = True,
    tail: Callable[[Tensor], Tensor] | None = None,
) -> tuple[str, tuple[Timed, Timed], bool]:  # fmt: skip
    """Errors first, then memory and times: as text, the times, and whether the gradients are wrong."""
    errors = _errors(case, bind, tail) if same else None
    call = bind([tensor.detach() for tensor in case.inputs])
    leaves = [tensor.detach() for tensor in call.inputs]
    call = Call(leaves, call.run, parameters=call.parameters)
    held = peak(_both(call), case.device)
    times = _times(call, case.device, capture)
    of_ours = "" if case.ours is None else "  ".join(
        f"{mine.milliseconds / own.milliseconds:4.2f}x" for mine, own in zip(times, case.ours, strict=True)
    )  # fmt: skip
    seconds = times[1].milliseconds * 1e9
    rate = case.work.operations(case.shape)[1] / seconds
    moved = traffic(case.inputs, case.weight)[1] / seconds
    found = f"{'another':>8s} {'function':>9s}" if errors is None else f"{errors[0]:8.1e} {errors[1]:9.1e}"
    return (
        f"{times[0].milliseconds:10.3f} {times[1].milliseconds:10.3f} {of_ours:>12s} {held:6.2f} {found} "
        f"{rate:8.2f} {moved:6.3f} {times[1].clock}",
        times,
        errors is not None and not errors[1] < WRONG,
    )


def _errors(
    case: _Case, bind: Callable[[Sequence[Tensor]], Call], tail: Callable[[Tensor], Tensor] | None
) -> tuple[float, float]:
    """Of the output, and the worst of the gradients along time, of the first rows."""
    if tail not in case.answers:
        case.answers[tail] = case.exact(tail)
    output, gradients = case.answers[tail]
    leaves = [tensor.clone().requires_grad_() for tensor in case.inputs]
    call = bind(leaves)
    made = call.finish(call.run(*call.inputs))
    made = tail(made) if tail else made
    # Of weights, which all rows share, float64 has one row's gradient alone.
    got = torch.autograd.grad(made, leaves[: len(gradients)], case.weight.to(made.dtype))
    worst = max(_error(one[:ROWS_COMPARED], other) for one, other in zip(got, gradients, strict=True))
    return _error(made[:ROWS_COMPARED], output), worst


def _times(call: Call, device: torch.device, capture: bool) -> tuple[Timed, Timed]:
    def forward() -> None:
        with torch.no_grad():
            call.run(*call.inputs)

    return measure(forward, device, capture), measure(_both(call), device, capture)


def _both(call: Call) -> Callable[[], Any]:
    """Forward and backward, from any gradient of the output, to all inputs and parameters."""
    leaves = [tensor.detach().requires_grad_() for tensor in call.inputs]
    with torch.no_grad():
        gradient = torch.randn_like(call.run(*call.inputs))

    def both() -> tuple[Tensor, ...]:
        return torch.autograd.grad(call.run(*leaves), [*leaves, *call.parameters], gradient)

    return both


def _error(one: Tensor, other: Tensor) -> float:
    one, other = one.detach().double(), other.detach()
    if other.dim() > 3:
        return float(((one - other).norm(dim=-1) / other.norm(dim=-1).clamp_min(1e-30)).median())
    return float(((one - other).abs() / other.abs().mean()).median())


def _row(title: str, products: str, rest: str) -> str:
    return f"  {title:29s} {products:9s} {rest}".rstrip()


def _brief(error: Exception) -> str:
    said = str(error).splitlines() or [type(error).__name__]
    return said[0][:100]
