"""What a bug report needs to know of a machine: versions, processors, and the fast paths they allow."""

import importlib.metadata
import importlib.util
import os
import platform
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from transduce.text.parallel import usable_cores
from transduce.version import __version__

PACKAGES = ("numpy", "sentencepiece", "triton")

# Those that change how fast matrices are multiplied; the last row is ARM's.
CPU_FEATURES = (
    *("avx2", "avx512f", "avx_vnni", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_int8", "amx_bf16"),
    *("asimd", "sve", "i8mm", "bf16"),
)


def examine() -> dict[str, Any]:
    """Return everything found, in a form JSON can hold."""
    torch, trouble = _import_torch()
    gpus = _gpus(torch) if torch else []
    return {
        "transduce": __version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        **{package: _version(package) for package in PACKAGES},
        "torch": torch.__version__ if torch else _version("torch"),
        "torch_import": trouble or "works",
        "cpu": _cpu_model(),
        "cores": usable_cores(),
        "memory_gib": _memory_gib(),
        "cpu_features": _cpu_features(torch),
        "cuda": _cuda(torch),
        "gpus": gpus,
        "mps": bool(torch and torch.backends.mps.is_available()),
        "fast_paths": {
            name: {"available": not reason, "reason": reason} for name, reason in _fast_paths(torch, gpus).items()
        },
    }


def lines(found: dict[str, Any]) -> Iterator[str]:
    """Yield what was found as text, one fact to a line."""
    facts = found | {
        "memory_gib": found["memory_gib"] or "unknown",
        "cpu_features": " ".join(found["cpu_features"]) or "none that matter",
        "gpus": "; ".join(
            f"{gpu['name']}, {gpu['memory_gib']} GiB, compute capability {gpu['capability']}" for gpu in found["gpus"]
        )
        or "none",
        "mps": "available" if found["mps"] else "not available",
    }
    del facts["fast_paths"]
    for name, value in facts.items():
        yield f"{name.replace('_gib', ' (GiB)').replace('_', ' '):14} {value}"
    yield ""
    yield "fast paths this machine is capable of:"
    for name, path in found["fast_paths"].items():
        yield f"  {name:40} {'yes' if path['available'] else 'no: ' + path['reason']}"


def _fast_paths(torch: ModuleType | None, gpus: list[dict[str, Any]]) -> dict[str, str]:
    """Return for each fast path why this machine cannot take it, or nothing when it can."""
    modern = any(int(gpu["capability"].split(".")[0]) >= 8 for gpu in gpus)
    no_gpu = "" if gpus else "torch sees no GPU"
    no_modern_gpu = no_gpu or ("" if modern else "no GPU has compute capability 8.0 or more")
    return {
        "our own decoding on the CPU": _no_compiler(),
        "bf16 on the CPU": "" if torch and _cpu_has_bf16(torch) else "the CPU has no instructions for it",
        "bf16 on the GPU": no_modern_gpu,
        "our own kernels on the GPU": no_modern_gpu or ("" if _importable("triton") else "triton is not installed"),
        "pinned memory": no_gpu,
        "reading .zst files": ""
        if _importable("compression.zstd") or _importable("zstandard")
        else "needs Python 3.14 or the zstandard package",
    }


def _no_compiler() -> str:
    from transduce.kernels.native import NativeError, find_compiler

    try:
        find_compiler()
    except NativeError as error:
        return str(error)
    return ""


def _cpu_has_bf16(torch: ModuleType) -> bool:
    from transduce.model.device import has_bf16  # what training itself asks

    return has_bf16(torch.device("cpu"))


def _import_torch() -> tuple[ModuleType | None, str]:
    try:
        import torch
    except (ImportError, OSError) as error:  # a missing or broken torch is the very thing to report
        return None, f"fails: {error}"
    return torch, ""


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:  # its parent is missing
        return False


def _cpuinfo(field: str) -> str:
    """Return the first value of a field in Linux's /proc/cpuinfo, or nothing."""
    path = Path("/proc/cpuinfo")
    found = re.search(
        rf"^{field}\s*:\s*(.*)$",
        path.read_text(encoding="utf-8", errors="replace") if path.exists() else "",
        re.MULTILINE,
    )
    return found.group(1) if found else ""


def _cpu_model() -> str:
    return _cpuinfo("model name") or platform.processor() or platform.machine()


def _cpu_features(torch: ModuleType | None) -> list[str]:
    if flags := (_cpuinfo("flags") or _cpuinfo("Features")).split():
        return [feature for feature in CPU_FEATURES if feature in flags]
    return [torch.backends.cpu.get_cpu_capability().lower()] if torch else []


def _memory_gib() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (AttributeError, ValueError):  # Windows has no sysconf
        return None


def _cuda(torch: ModuleType | None) -> str:
    if torch is None:
        return "unknown"
    built_for = torch.version.cuda or torch.version.hip
    if built_for is None:
        return "not in this build of torch"
    return built_for if torch.cuda.is_available() else f"{built_for}, but no usable device"


def _gpus(torch: ModuleType) -> list[dict[str, Any]]:
    devices = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
    return [
        {
            "name": device.name,
            "memory_gib": round(device.total_memory / 2**30, 1),
            "capability": f"{device.major}.{device.minor}",
        }
        for device in devices
    ]
