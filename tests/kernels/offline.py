"""Compiling Triton kernels for sm_90 where there is no GPU: registers, spills, shared memory; no numbers.

    python -m tests.kernels.offline tests.kernels.test_mlstm_kernel:launch

calls `launch()` with a driver that compiles whatever is launched and runs none of it, on CPU tensors, and prints
a JSON list of reports. It must be a process of its own: the interpreter of Triton excludes its compiler.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

MAXIMUM_SHARED = 227 * 1024
"""Bytes of shared memory that a block may have on sm_90."""


def reports_of(launch: str) -> list[dict[str, Any]]:
    """Each kernel that `module:function` launches, once per variant: name, registers, stack, shared (bytes)."""
    environment = os.environ | {"TRITON_INTERPRET": "0"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.kernels.offline", launch],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    reports: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return reports


def misfits(reports: list[dict[str, Any]], spill: float = 0, chunk: float = 0) -> list[dict[str, Any]]:
    """Those of kernels that use more shared memory than there is, or more bytes of stack than `spill`; than `chunk`,
    if that is more, where it is the gradients of one chunk, which few warps or registers make quicker even so."""
    allowed = {"gradients_kernel": max(spill, chunk)}
    return [
        report
        for report in reports
        if report["stack"] > allowed.get(report["name"], spill) or report["shared"] > MAXIMUM_SHARED
    ]


def _main(launch: str) -> None:
    module, function = launch.split(":")
    compiled = _activate()
    getattr(importlib.import_module(module), function)()
    print(json.dumps([_report(kernel) for kernel in compiled.values()]))  # noqa: T201


def _activate() -> dict[str, Any]:
    import torch
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.backends.driver import DriverBase

    class Driver(DriverBase):
        def __init__(self) -> None:
            super().__init__()
            self.launcher_cls = lambda *a, **k: lambda *a, **k: None
            self.utils = self

        def load_binary(self, *_: Any) -> tuple[Any, ...]:
            return None, None, 0, 0, 1024

        def get_device_properties(self, *_: Any) -> dict[str, int]:
            return {"max_shared_mem": MAXIMUM_SHARED, "multiprocessor_count": 132, "warpSize": 32}

        @classmethod
        def is_active(cls) -> bool:
            return True

        def map_python_to_cpp_type(self, ty: str) -> str:
            return "int"

        def get_current_target(self) -> GPUTarget:
            return GPUTarget("cuda", 90, 32)

        def get_active_torch_device(self) -> torch.device:
            return torch.device("cpu")

        def get_current_device(self) -> int:
            return 0

        def set_current_device(self, device: int) -> None:
            pass

        def get_current_stream(self, device: int = 0) -> int:
            return 0

        def get_device_interface(self) -> Any:
            return torch

        def get_benchmarker(self) -> Any:
            return lambda call, **_: [call(), 0.0, 0.0][1:] and [0.0, 0.0, 0.0]

        def get_empty_cache_for_benchmark(self) -> Any:
            return None

        def clear_cache(self, cache: Any) -> None:
            pass

    triton.runtime.driver.set_active(Driver())
    compiled: dict[str, Any] = {}
    run = triton.runtime.jit.JITFunction.run

    def watched(self: Any, *args: Any, **kwargs: Any) -> Any:
        kernel = run(self, *args, **kwargs)
        compiled[kernel.hash] = kernel
        return kernel

    triton.runtime.jit.JITFunction.run = watched
    return compiled


def _report(kernel: Any) -> dict[str, Any]:
    import triton

    tools = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        said = subprocess.run(
            [tools / "cuobjdump", "--dump-resource-usage", file.name],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+)", said)
    assert found, said
    return {
        "name": kernel.name,
        "warps": kernel.metadata.num_warps,
        "registers": int(found[1]),
        "stack": int(found[2]),
        "shared": kernel.metadata.shared,
        "turned": sorted(_turned(kernel.asm["ttgir"])),
    }


def _turned(code: str) -> set[str]:
    """How tiles lie in registers that `movmatrix` transposes, which takes them by register whatever they hold."""
    layouts = dict(re.findall(r"^(#\w+) = (#ttg\.\w+<.*)$", code, re.M))
    lines = [line for line in code.splitlines() if "movmatrix" in line]
    return {layouts[name] for line in lines for name in re.findall(r"tensor<16x16x\w+, (#\w+)>", line)}


if __name__ == "__main__":
    _main(sys.argv[1])
