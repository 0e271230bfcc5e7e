"""An executor that stands in for cuDNN's, and for torch-flat: the same calls, computed on the CPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rnnconvert.formats.cudnn import run as cudnn
from rnnconvert.formats.cudnn import run_library as cudnn_library
from rnnconvert.formats.cudnn import run_torch
from tests.cudnn_standin import HostMemory, StandIn
from tests.gpu import standins

NEEDS = ("numpy", "torch")
FORMAT = cudnn.FORMAT
BUFFER_KEY = cudnn.BUFFER_KEY
SUFFIX = cudnn.SUFFIX
SUPPORTS = "a stand-in"
VARIANTS = {name: {**variant, "device": "cpu"} for name, variant in {**cudnn.VARIANTS, **run_torch.VARIANTS}.items()}


def absent(variant: Mapping[str, Any]) -> str:
    """Nothing is missing."""
    return ""


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Run a flat buffer with its description; see rnnconvert.running."""
    description = request["description"]
    given = {name: request.get(name) for name in ("hidden", "cell", "lengths", "cotangents")}
    if "algorithm" not in request["variant"]:
        params = request["buffer"].view(run_torch._STORED[description["dtype"]])
        with standins.by_hand():
            return run_torch.run(params, request["x"], description, "cpu", **given)
    about = {**description, "elements": request["buffer"].size}
    device: Any = cudnn.Device(StandIn(about), cudnn_library.Memory(HostMemory()))
    found = cudnn.run(request["buffer"], request["x"], about, device, request["variant"], **given)
    found["notes"].pop("offsets")  # the stand-in has none
    return found
