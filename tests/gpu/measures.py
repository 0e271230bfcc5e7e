"""Times on the GPU: a checkpoint of 1.4 GB straight into device memory, and the verification of a large layer."""

from __future__ import annotations

import functools
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import rnnconvert
from rnnconvert.verification.verify import verify
from tests.gpu.records import DIFFERENT, MEASURED, Absence
from tests.gpu.work import Case, Outcome, Work

GIGABYTE = 1e9
FULL, SMALL, TINY = (4, 1024, 2048), (1, 256, 1024), (1, 64, 128)
"""Layers, inputs and units of a bidirectional float32 LSTM: 1.4 GB, 42 MB, 0.8 MB."""
VERIFIED, VERIFIED_SMALL = (4, 1024, 1024), (4, 64, 64)
ROUNDS = 3
LEAST = 0.5
"""Gigabytes of free memory below which nothing is measured."""


def cases(work: Work) -> list[Case]:
    """The cases of the parts `load` and `verify`, in the order in which they use each other's files."""
    if work.part == "verify":
        return [
            Case("torch-cuda, one case", lambda: _verified(work, ("states",))),
            Case("torch-cuda, the usual cases", lambda: _verified(work, ())),
        ]
    ways: dict[str, Callable[[], Outcome]] = {
        "torch.load and load_state_dict": lambda: _loaded(work, ".pt", False),
        "load_into from .pt": lambda: _loaded(work, ".pt", True),
        "convert .pt to .safetensors": lambda: _converted(work, ".safetensors"),
        "safetensors.torch.load_file and load_state_dict": lambda: _loaded(work, ".safetensors", False),
        "load_into from .safetensors": lambda: _loaded(work, ".safetensors", True),
        "convert .pt to .onnx": lambda: _converted(work, ".onnx"),
        "load_into from .onnx": lambda: _loaded(work, ".onnx", True),
    }
    return [Case(name, run) for name, run in ways.items()]


@functools.cache
def _size(work_folder: str, device: str, wanted: tuple[int, int, int], small: tuple[int, int, int]) -> tuple[Any, str]:
    """The size that fits here, and why it is not the one wanted."""
    import torch

    if device == "cpu":
        return TINY, "a stand-in is small"
    free = torch.cuda.mem_get_info()[0] / GIGABYTE
    disk = shutil.disk_usage(work_folder).free / GIGABYTE
    layers, _, units = wanted
    need = 3 * layers * units * units * 96 / GIGABYTE  # three times the bytes of the weights
    if free < LEAST:
        raise Absence(f"too little memory: {free:.1f} GB of the GPU's are free, and {LEAST} are needed at least")
    if free < need or disk < need:
        return small, f"{free:.1f} GB of the GPU's memory and {disk:.1f} GB of disk are free; {need:.1f} are needed"
    return wanted, ""


def _need(work: Work) -> None:
    blocked = work.facts.get("blocked", {}).get("torch", "")
    if blocked:
        raise Absence(blocked)


def _module(work: Work) -> Any:
    """A module on the device, its numbers those of the checkpoint, and the checkpoint."""
    import torch

    _need(work)
    size, why = _size(str(work.folder), work.device, FULL, SMALL)
    layers, inputs, units = size
    path = work.folder / "a.pt"
    module = torch.nn.LSTM(inputs, units, layers, bidirectional=True, device=work.device)
    if not path.is_file():
        torch.manual_seed(0)
        torch.save({name: value.cpu() for name, value in module.state_dict().items()}, path)
    return module, path, why


def _wait(work: Work) -> None:
    if not work.stands_in:
        import torch

        torch.cuda.synchronize()


def _loaded(work: Work, suffix: str, ours: bool) -> Outcome:
    """Fill a module on the device, and compare every bit with torch's own loading."""
    import torch

    module, path, why = _module(work)
    source = path.with_suffix(suffix)
    if not source.is_file():
        raise Absence(f"{source.name} was not written by the case before")

    def work_of_torch() -> None:
        if suffix == ".pt":
            state = torch.load(source, map_location=work.device, weights_only=True)
        else:
            from safetensors.torch import load_file

            state = load_file(source, device=work.device)
        module.load_state_dict(state)

    def work_of_ours() -> None:
        rnnconvert.load_into(module, source, strict=suffix != ".onnx")

    seconds = []
    for _ in range(ROUNDS):
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.zero_()
        _wait(work)
        start = time.perf_counter()
        (work_of_ours if ours else work_of_torch)()
        _wait(work)
        seconds.append(time.perf_counter() - start)
    exact = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    wrong = [name for name, value in module.state_dict().items() if not torch.equal(value.cpu(), exact[name])]
    # A file whose cell has one bias holds the sum of torch's two.
    elsewhere = [name for name, value in module.state_dict().items() if value.device.type != work.device]
    facts = _facts(path, seconds, why)
    if wrong or elsewhere:
        return Outcome(DIFFERENT, f"not the checkpoint's numbers: {', '.join((wrong + elsewhere)[:3])}", facts=facts)
    return Outcome(MEASURED, f"{min(seconds):.3f} s", facts=facts)


def _converted(work: Work, suffix: str) -> Outcome:
    _, path, why = _module(work)
    seconds = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        rnnconvert.convert(path, path.with_suffix(suffix), force=True)
        seconds.append(time.perf_counter() - start)
    return Outcome(MEASURED, f"{min(seconds):.3f} s", facts=_facts(path, seconds, why))


def _facts(path: Path, seconds: list[float], why: str) -> dict[str, Any]:
    return {"bytes": path.stat().st_size, "seconds": seconds, "smaller, because": why}


def _verified(work: Work, chosen: tuple[str, ...]) -> Outcome:
    import torch

    _need(work)
    size, why = _size(str(work.folder), work.device, VERIFIED, VERIFIED_SMALL)
    layers, inputs, units = size
    path = work.folder / "b.pt"
    if not path.is_file():
        torch.manual_seed(1)
        torch.save(torch.nn.LSTM(inputs, units, layers, bidirectional=True).state_dict(), path)
    choices: dict[str, Any] = {"cases": chosen} if chosen else {}
    start = time.perf_counter()
    report = verify(path, on=["torch-cuda"], explain=False, **choices)
    facts = _facts(path, [time.perf_counter() - start], why)
    if not report.equal:
        return Outcome(DIFFERENT, str(report)[:600], facts=facts)
    ratios = [float(comparison["ratio"]) for run in report.document["layers"][0]["runs"] for comparison in run["comparisons"]]
    return Outcome(MEASURED, f"{facts['seconds'][0]:.1f} s", max(ratios, default=None), facts=facts)
