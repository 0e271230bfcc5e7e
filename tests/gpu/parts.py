"""What is run, in which order, and for how long at most."""

from __future__ import annotations

from dataclasses import dataclass, replace

TOTAL = 460
"""Seconds after which nothing more is started or awaited: eight minutes with the reports and the cleaning up."""


@dataclass(frozen=True)
class Part:
    """Cases that one process runs.

    module   the module that lists and runs them
    seconds  how long all of it may take
    each     how long one case may take; the first has `first`, since it imports a framework
    """

    name: str
    title: str
    module: str
    seconds: int
    each: int = 20
    first: int = 60


PARTS = (
    Part("machine", "The machine: GPU, driver, libraries", "tests.gpu.machine", 30, 25, 25),
    Part("layout", "cuDNN's own account of its weight buffer", "tests.gpu.flat", 20),
    Part("questions", "What the documentation leaves open", "tests.gpu.questions", 25),
    Part("cudnn", "cuDNN itself, called through ctypes", "tests.gpu.flat", 65),
    Part("torch", "PyTorch", "tests.gpu.frameworks", 80, 40, 45),
    Part("jax", "JAX, its cuDNN LSTM, Flax, Haiku, Equinox", "tests.gpu.frameworks", 60, 40, 45),
    Part("keras", "Keras on each backend", "tests.gpu.frameworks", 65, 40, 45),
    Part("onnxruntime", "onnxruntime", "tests.gpu.frameworks", 20, 20, 20),
    Part("load", "Loading 1.4 GB into device memory", "tests.gpu.measures", 60, 40, 40),
    Part("verify", "Verifying a 4-layer bidirectional LSTM of 1024", "tests.gpu.measures", 35, 35, 35),
)
"""Their seconds sum to TOTAL at most: a part that takes all of its time leaves the others theirs."""


def scaled(part: Part, seconds: int) -> Part:
    """The part with its limits lengthened as much as the whole run's; never shortened."""
    times = max(1.0, seconds / TOTAL)
    return replace(part, seconds=round(part.seconds * times), each=round(part.each * times), first=round(part.first * times))
