"""One model of the gallery, and how its outputs are compared with those that its own framework gave."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, numpy_helper

import rnnconvert as rc
from rnnconvert.core.arrays import Array
from rnnconvert.judging.comparison import OutputComparison
from rnnconvert.judging.judging import Allowance, Output, compare
from rnnconvert.models.runners import moved
from tests.helpers.corpus import FOLDER

REFERENCES = Path(__file__).parent / "references"
"""Outputs of whole models, where the corpus has those of their recurrent layers only: see make_references.py."""

SHAKES = 3
"""How often the weights are moved by one unit in the last place: what the outputs move by, rounding explains."""

Arrays = Mapping[str, Array]


@dataclass(frozen=True)
class Entry:
    """A real model.

    file      its checkpoint, under the corpus
    target    the framework that it is rebuilt in: "keras", "torch" or "onnx"
    build     makes the rebuilt model, empty
    run       gives the rebuilt model's outputs by the names that the references have for them, from the inputs there
    expected  which of the references' arrays are outputs to compare with
    argument  makes what is handed to load_into of the checkpoint's path: the path itself if not said
    options   how load_into is told what neither model says
    reference the file of inputs and outputs beside the checkpoint, where it is not called as that is
    recorded  gives the references themselves, where they are not in one such file
    named     what tells it from others of the same file
    """

    file: str
    target: str
    build: Callable[[], Any]
    run: Callable[[Any, Arrays], Arrays]
    expected: tuple[str, ...]
    argument: Callable[[Path], Any] = str
    options: Mapping[str, Any] = field(default_factory=dict)
    reference: str = ""
    recorded: Callable[[], Arrays] | None = None
    named: str = ""

    def __str__(self) -> str:
        return f"{self.file}{':' if self.named else ''}{self.named} in {self.target}"

    @property
    def path(self) -> Path:
        """The checkpoint."""
        return FOLDER / self.file

    def references(self) -> dict[str, Array]:
        """Inputs and outputs: those of the corpus, and those of the whole model where the corpus has none."""
        if self.recorded is not None:
            return dict(self.recorded())
        reference = self.path.parent / (self.reference or f"{self.path.name.rpartition('.')[0]}.ref.npz")
        extra = REFERENCES / f"{self.path.parent.name}-{self.path.stem}.npz"
        arrays = stored(reference)
        return {**arrays, **stored(extra)} if extra.exists() else arrays

    def filled(self) -> tuple[Any, Any]:
        """The rebuilt model with the checkpoint's weights, and the report of what was done."""
        model = self.build()
        report = rc.load_into(model, self.argument(self.path), **self.options)
        return model, report

    def comparisons(self, model: Any) -> list[OutputComparison]:
        """Every output beside the reference, with what rounding explains."""
        recorded = self.references()
        outputs = self.run(model, recorded)
        rough = []
        for seed in range(SHAKES):
            with shaken(model, seed):
                rough.append(self.run(model, recorded))
        compared = []
        for name in self.expected:
            floors = [recorded[name] + (disturbed[name].astype(np.float64) - outputs[name]) for disturbed in rough]
            allowance = Allowance(floors, np.dtype(np.float32))
            compared.append(compare(Output(self.file, name), outputs[name], recorded[name], allowance))
        return compared


def stored(path: Path) -> dict[str, Array]:
    """The arrays of an .npz file, or of a Keras author's HDF5 file of inputs and outputs, by their last names."""
    if path.suffix == ".npz":
        with np.load(path) as held:
            return {name: np.asarray(held[name]) for name in held.files}
    import h5py

    with h5py.File(path) as file:
        (x,) = file["inputs"].values()
        return {"x": np.asarray(x), **{name: np.asarray(y) for name, y in file["activations"].items()}}


@contextmanager
def shaken(model: Any, seed: int) -> Iterator[None]:
    """The model with every weight moved by about one unit in the last place, and afterwards as it was."""
    generator = np.random.default_rng(seed)
    before = numbers(model)
    put(model, [moved(weight, float(np.finfo(weight.dtype).eps), generator).astype(weight.dtype) for weight in before])
    try:
        yield
    finally:
        put(model, before)


def numbers(model: Any) -> list[Array]:
    """Every weight of a torch module, a Keras model or an ONNX model, in its own order."""
    if hasattr(model, "state_dict"):
        return [np.array(parameter.detach()) for parameter in tensors(model)]
    if hasattr(model, "graph"):
        return [numpy_helper.to_array(parameter) for parameter in initializers(model)]
    return [np.asarray(parameter) for parameter in model.get_weights()]


def put(model: Any, arrays: list[Array]) -> None:
    """Replace every weight."""
    if hasattr(model, "state_dict"):
        import torch

        with torch.no_grad():
            for tensor, array in zip(tensors(model), arrays, strict=True):
                tensor.copy_(torch.from_numpy(array))
    elif hasattr(model, "graph"):
        for initializer, array in zip(initializers(model), arrays, strict=True):
            initializer.CopyFrom(numpy_helper.from_array(array, initializer.name))
    else:
        model.set_weights(arrays)


def tensors(module: Any) -> list[Any]:
    """A torch module's parameters and buffers of floating-point numbers."""
    return [parameter for parameter in (*module.parameters(), *module.buffers()) if parameter.is_floating_point()]


def initializers(model: Any) -> list[Any]:
    """An ONNX model's weights in single precision."""
    return [initializer for initializer in model.graph.initializer if initializer.data_type == TensorProto.FLOAT]
