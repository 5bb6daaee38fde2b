"""What the kernels are measured beside: other libraries' kernels, cuDNN, and torch as one would write it first.

Nothing here is needed to use the kernels: a peer is imported when it is asked for, and one that is not installed is a
line that says how to install it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from statelab.kernels import adapters
from statelab.kernels.contract import HAS_TRITON
from statelab.kernels.naive import materialised_read, quadratic_mlstm
from statelab.kernels.works import Shape

CONFIGURATIONS = 6
"""Of those between which a peer's kernel chooses by trying, how many are tried: evenly spread over its list. All of
them would be hundreds of compilations, minutes for one shape."""


@dataclass(frozen=True)
class Peer:
    """Another way to compute an op.

    `module` is what is imported and `package` what pip calls it; None for what comes with torch. `name` tells peers
    of one module apart. `note` is printed behind its line. `fits` says at which shapes it is measured, `dtypes` of
    which inputs. `same` is off where the function is another one, so that there is no error to give; `tail` is put
    behind both outputs before errors are taken; `tf32` makes torch's own products so. `guarded`: see `lift_guard`.
    """

    name: str
    bind: adapters.Bind
    module: str | None = None
    package: str | None = None
    note: str = ""
    fits: Callable[[Shape], bool] = lambda shape: True
    dtypes: tuple[torch.dtype, ...] = (torch.bfloat16, torch.float16, torch.float32)
    same: bool = True
    tail: Callable[[Tensor], Tensor] | None = None
    tf32: bool = False
    guarded: bool = False

    @property
    def remark(self) -> str:
        """What is to be said behind its line, once it has run."""
        return f"{self.note}; guard lifted".removeprefix("; ") if self.guarded and _lifted() else self.note

    @property
    def title(self) -> str:
        """Its module, the version that is imported, its name."""
        version = getattr(sys.modules.get(self.module or ""), "__version__", "")
        return " ".join(filter(None, (self.module, version, self.name)))

    def call(self, inputs: Sequence[Tensor]) -> adapters.Call:
        """The op's inputs as this peer takes them, once it is imported, its choices limited and its guard lifted.

        Raises ImportError, with what to do, where it cannot be imported.
        """
        try:
            call = self.bind(inputs)
        except ModuleNotFoundError as error:
            if self.module and (error.name or "").split(".")[0] == self.module:
                raise ImportError(f"not installed: pip install {self.package}") from None
            raise
        if self.module:
            limit_choices(self.module)
        if self.guarded:
            lift_guard()
        return call

    @contextmanager
    def settings(self) -> Iterator[None]:
        """Within the block torch's own products are made as this peer says."""
        before = torch.backends.cuda.matmul.allow_tf32
        torch.backends.cuda.matmul.allow_tf32 = before or self.tf32
        try:
            yield
        finally:
            torch.backends.cuda.matmul.allow_tf32 = before


def limit_choices(package: str, most: int = CONFIGURATIONS) -> int:
    """Let every kernel of an imported package choose between `most` configurations; the number of such kernels."""
    tuners = {id(tuner): tuner for tuner in _tuners(package)} if HAS_TRITON else {}
    for tuner in tuners.values():
        count = len(tuner.configs)
        if count > most:
            kept = {round(place * (count - 1) / (most - 1)) for place in range(most)}
            tuner.configs[:] = [tuner.configs[place] for place in sorted(kept)]
        tuner.__dict__["do_bench"] = _brief
    return len(tuners)


def forget_choices(package: str) -> None:
    """Let every kernel of an imported package choose again: what was timed beside other work is no choice."""
    for tuner in _tuners(package) if HAS_TRITON else ():
        tuner.cache.clear()


def _brief(call: Callable[[], Any], quantiles: Sequence[float]) -> Any:
    from triton.testing import do_bench

    return do_bench(call, warmup=3, rep=15, quantiles=quantiles)


def _tuners(package: str) -> Iterator[Any]:
    from triton.runtime.autotuner import Autotuner

    modules = [module for name, module in list(sys.modules.items()) if name.split(".")[0] == package]
    for module in modules:
        for value in list(vars(module).values()):
            # Heuristics and the like stand around the tuner, each holding the next as `fn`.
            while value is not None and type(value).__module__.startswith("triton."):
                if isinstance(value, Autotuner):
                    yield value
                value = getattr(value, "fn", None)


def lift_guard() -> None:
    """Let flash-linear-attention's gated backward run with Triton 3.4 to 3.7.0 on Hopper, where it would refuse.

    It does so because Triton miscompiles it where a tile of keys is 64 wide (its issue #640): at widths of 33 to 64,
    and at no others. The errors beside its times say what came out.
    """
    module = sys.modules.get("fla.ops.common.chunk_o")
    if getattr(module, "IS_NVIDIA_HOPPER", False) and hasattr(module, "TRITON_ABOVE_3_7_1"):
        vars(module)["TRITON_ABOVE_3_7_1"] = True


def _lifted() -> bool:
    places = (sys.modules.get(name) for name in ("fla.ops.common.chunk_o", "fla.utils"))
    flags = [getattr(place, "TRITON_ABOVE_3_7_1", None) for place in places]
    return flags[0] is not None and flags[0] != flags[1]


def _miscompiled(shape: Shape) -> bool:
    return 32 < shape.d <= 64


def _fla(bind: Callable[[int | None], adapters.Bind], **how: Any) -> tuple[Peer, Peer]:
    """Keys as they are, with gradients that may be wrong, and padded to where they are right."""
    how |= {"module": "fla", "package": "flash-linear-attention", "guarded": True}
    return (
        Peer("", bind(None), **how),
        Peer("K to 128", bind(128), note="keys padded with zeros", fits=_miscompiled, **how),
    )


def _normed(h_BTHV: Tensor) -> Tensor:
    return F.layer_norm(h_BTHV, h_BTHV.shape[-1:])


_MAMBA: dict[str, Any] = {"module": "mamba_ssm", "package": "mamba-ssm"}
_HALF = (torch.bfloat16, torch.float16)
PEERS: dict[str, tuple[Peer, ...]] = {
    "mlstm": (
        Peer(
            "", adapters.xl_chunk, "mlstm_kernels", "mlstm_kernels", tail=_normed,
            note="no gradient of the denominator: errors behind a norm of each head", fits=lambda s: s.T % 128 == 0,
        ),
        Peer("quadratic torch", adapters.plain(quadratic_mlstm), note="float32 products"),
        Peer("quadratic torch, tf32", adapters.plain(quadratic_mlstm), tf32=True),
    ),
    "orthogonal": (
        Peer("torch, every C", adapters.plain(materialised_read), note="float32 products"),
        Peer("torch, every C, tf32", adapters.plain(materialised_read), tf32=True),
    ),
    "ssd": (
        *_fla(adapters.fla_simple_gla),
        Peer("Mamba-2", adapters.mamba2, **_MAMBA),
    ),
    "mamba3": (
        Peer("Mamba-3", adapters.mamba3, dtypes=_HALF, note="angles in bf16", **_MAMBA),
    ),
    "delta_rule": _fla(adapters.fla_delta_rule),
    "delta_product": _fla(adapters.fla_delta_product, dtypes=_HALF),
    "rnn": (Peer("cuDNN", adapters.cudnn_rnn, note="heads as rows, its input product included"),),
    "gru": (
        Peer("cuDNN", adapters.cudnn_gru, same=False, note="resets after the product; heads as rows, input products"),
    ),
    "short_conv": (
        Peer("torch conv1d", adapters.torch_conv),
        Peer("torch.compile", adapters.compiled_conv),
        Peer("", adapters.fla_conv, "fla", "flash-linear-attention"),
    ),
}  # fmt: skip
