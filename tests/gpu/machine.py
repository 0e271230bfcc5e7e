"""What is here, each fact asked in the way of whoever needs it, and what is in the way of each part."""

from __future__ import annotations

import contextlib
import ctypes
import platform
import sys
from collections.abc import Mapping
from importlib import metadata
from typing import Any

from rnnconvert.formats.cudnn import run_library as cudnn_library
from tests.gpu import flat, standins
from tests.gpu.records import MEASURED, Absence
from tests.gpu.work import Case, Outcome, Work

PACKAGES = (
    "torch", "numpy", "jax", "jaxlib", "jax-cuda12-plugin", "jax-cuda13-plugin", "flax", "dm-haiku", "equinox", "keras", "tensorflow",
    "onnxruntime-gpu", "onnxruntime", "onnx", "h5py", "safetensors", "ml-dtypes", "protobuf", "click", "PyYAML", "nvidia-cudnn-cu12",
    "nvidia-cudnn-cu13", "nvidia-cuda-runtime-cu12", "nvidia-cuda-runtime",
)  # fmt: skip
LEAST = 1 << 29
"""Bytes of the GPU's memory below which nothing is run there."""

OLDEST = {12: (5, 0), 13: (7, 5)}
"""The oldest GPU, as compute capability, that libraries of each CUDA have code for."""

DRIVERS = {12: "525.60", 13: "580"}
"""The oldest driver for Linux of each CUDA."""


def cases(work: Work) -> list[Case]:
    """What is asked, each by itself: any of these may crash."""
    return [
        Case("packages", lambda: Outcome(MEASURED, facts={"packages": packages()})),
        Case("driver", lambda: Outcome(MEASURED, facts={"driver": driver(work)})),
        Case("cuDNN", lambda: Outcome(MEASURED, facts={"cudnn": library(work)})),
        Case("torch", lambda: Outcome(MEASURED, facts={"torch": torch_(work)})),
        Case("jax", lambda: Outcome(MEASURED, facts={"jax": jax_(work)})),
    ]


def packages() -> dict[str, str]:
    """Versions of what matters here; "" for what is missing."""
    versions = {"python": platform.python_version(), "platform": platform.platform(), "executable": sys.executable}
    for name in PACKAGES:
        versions[name] = ""
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


def driver(work: Work) -> dict[str, Any]:
    """What NVIDIA's driver says of the first GPU. Raises Absence without one."""
    if work.stands_in:
        return {"device": standins.MARK}
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise Absence(f"NVIDIA's driver is not found: {error}") from None

    def checked(function: str, *arguments: Any) -> None:
        status = getattr(cuda, function)(*arguments)
        if status:
            text = ctypes.c_char_p()
            with contextlib.suppress(AttributeError):
                cuda.cuGetErrorString(status, ctypes.byref(text))
            message = text.value.decode() if text.value else "an error"
            raise Absence(f"{function}: {message} ({status})")

    version = ctypes.c_int()
    checked("cuDriverGetVersion", ctypes.byref(version))
    facts: dict[str, Any] = {"cuda": [version.value // 1000, version.value % 1000 // 10]}
    checked("cuInit", 0)
    count, device, name = ctypes.c_int(), ctypes.c_int(), ctypes.create_string_buffer(256)
    checked("cuDeviceGetCount", ctypes.byref(count))
    if not count.value:
        raise Absence("the driver sees no GPU: is CUDA_VISIBLE_DEVICES empty?")
    checked("cuDeviceGet", ctypes.byref(device), 0)
    checked("cuDeviceGetName", name, 256, device)
    capability = []
    for attribute in (75, 76):  # the major and the minor number
        value = ctypes.c_int()
        checked("cuDeviceGetAttribute", ctypes.byref(value), attribute, device)
        capability.append(value.value)
    facts |= {"device": name.value.decode(), "devices": count.value, "capability": capability}
    context, free, total = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
    checked("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    checked("cuCtxSetCurrent", context)
    checked("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    return facts | {"free": free.value, "total": total.value}


def library(work: Work) -> dict[str, Any]:
    """cuDNN's version and that of the CUDA it is made for; with a GPU, whether it starts. Raises Absence."""
    on = flat.library(work)
    on.c.cudnnGetCudartVersion.restype = ctypes.c_size_t
    made_for = int(on.c.cudnnGetCudartVersion())
    facts: dict[str, Any] = {
        "version": on.version, "cuda": [made_for // 1000, made_for % 1000 // 10], "files": flat.libraries(work),
    }  # fmt: skip
    if not work.stands_in:
        facts["cudart"] = cudnn_library.libraries("cudart")
        flat.memory()
        try:
            with on.handle():
                pass
        except RuntimeError as error:
            facts["error"] = str(error)
    return facts


def torch_(work: Work) -> dict[str, Any]:
    """torch's version, its CUDA, and whether it computes on the GPU."""
    import torch

    facts: dict[str, Any] = {"version": torch.__version__, "cuda": torch.version.cuda or ""}
    if not work.stands_in:
        try:
            facts["compiled for"] = torch.cuda.get_arch_list()
            facts["cuDNN"] = torch.backends.cudnn.version()
            facts["sum"] = float(torch.ones(3, device="cuda").sum())
            facts["computes"] = facts["sum"] == 3
        except Exception as error:
            facts["error"] = " ".join(str(error).split())[:400]
    return facts


def jax_(work: Work) -> dict[str, Any]:
    """jax's version, and whether it computes on the GPU."""
    import jax

    facts: dict[str, Any] = {"version": jax.__version__}
    if not work.stands_in:
        try:
            facts["devices"] = [str(device) for device in jax.devices("cuda")]
            facts["computes"] = float(jax.numpy.ones(3).sum()) == 3
        except Exception as error:
            facts["error"] = " ".join(str(error).split())[:400]
    return facts


def blocked(facts: Mapping[str, Any], why: Mapping[str, str], device: str) -> dict[str, str]:
    """What is in the way of cudnn, torch, jax and of any GPU at all, by these names; in words, with what to do.

    facts  what the cases found, by "driver", "cudnn", "torch" and "jax"
    why    what went wrong with those that found nothing, by the same names
    """
    reasons = {name: why.get(name) or f"{name}: nothing was found out" for name in ("cudnn", "torch", "jax") if name not in facts}
    if device == "cpu":
        # Stand-ins need no library of NVIDIA's; the case that asks the real one says itself that it is missing.
        return {name: text for name, text in reasons.items() if name != "cudnn"}
    gpu = _gpu(facts, why)
    if gpu:
        return dict.fromkeys(("gpu", "cudnn", "torch", "jax"), gpu)
    cuda, capability = facts["driver"]["cuda"], tuple(facts["driver"]["capability"])
    here = f"{facts['driver']['device']} (compute capability {capability[0]}.{capability[1]})"
    for name in ("cudnn", "torch"):
        made_for = _cuda_of(facts.get(name, {}))
        if not made_for:
            continue
        version = f"{'cuDNN' if name == 'cudnn' else 'torch'} {facts[name]['version']} is made for CUDA {made_for}"
        if made_for > cuda[0]:
            reasons[name] = (
                f"the driver is older than the libraries: it knows CUDA {cuda[0]}.{cuda[1]}, but {version}. "
                f"Install driver {DRIVERS.get(made_for, 'of that CUDA')} or newer"
            )
        elif capability < OLDEST.get(made_for, (0, 0)):
            oldest = ".".join(map(str, OLDEST[made_for]))
            reasons[name] = f"the GPU is too old: {here}, but {version}, which begins at {oldest}"
    for name in ("cudnn", "torch", "jax"):
        error = facts.get(name, {}).get("error", "")
        if error and name not in reasons:
            reasons[name] = f"{name} does not run on {here}: {error}"
    if "torch" in facts and "torch" not in reasons and not facts["torch"]["cuda"]:
        reasons["torch"] = f"torch {facts['torch']['version']} is made for the CPU"
    return reasons


def _gpu(facts: Mapping[str, Any], why: Mapping[str, str]) -> str:
    if "driver" not in facts:
        return why.get("driver") or "the driver gave no answer"
    free = facts["driver"]["free"]
    if free < LEAST:
        return f"too little memory: {free / 1e9:.2f} GB of the GPU's are free, and {LEAST / 1e9:.1f} are needed at least"
    return ""


def _cuda_of(facts: Mapping[str, Any]) -> int:
    """The first number of the CUDA that a library is made for; 0 if it is unknown."""
    made_for = facts.get("cuda")
    if isinstance(made_for, str):
        return int(made_for.partition(".")[0]) if made_for else 0
    return int(made_for[0]) if made_for else 0
