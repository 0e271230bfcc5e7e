"""An executor that stands in for cuDNN's, and for torch-flat: the same calls, computed on the CPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rnnconvert.formats.cudnn import run as cudnn
from rnnconvert.formats.cudnn import run_library as cudnn_library
from rnnconvert.formats.pytorch import run_flat
from rnnconvert.running.sequences import Sequences
from tests.gpu import standins
from tests.helpers.cudnn_standin import HostMemory, StandIn

NEEDS = ("numpy", "torch")
FORMAT = cudnn.FORMAT
BUFFER_KEY = cudnn.BUFFER_KEY
SUFFIX = cudnn.SUFFIX
SUPPORTS = "a stand-in"
VARIANTS = {name: {**variant, "device": "cpu"} for name, variant in {**cudnn.VARIANTS, **run_flat.VARIANTS}.items()}


def absent(variant: Mapping[str, Any]) -> str:
    """Nothing is missing."""
    return ""


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Run a flat buffer with its description; see rnnconvert.running."""
    description = request["description"]
    fed = Sequences.of(request)
    if "algorithm" not in request["variant"]:
        params = request["buffer"].view(run_flat.STORED[description["dtype"]])
        with standins.by_hand():
            return run_flat.run(params, description, fed, "cpu")
    about = {**description, "elements": request["buffer"].size}
    device: Any = cudnn.Device(StandIn(about), cudnn_library.Memory(HostMemory()))
    answered = cudnn.run(request["buffer"], about, fed, device, request["variant"])
    answered["notes"].pop("offsets")  # the stand-in has none
    return answered
