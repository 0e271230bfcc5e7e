"""Each framework as a judge of its layouts: a canonical stack is packed, and the framework runs it."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rnnconvert.core.arrays import Array
from rnnconvert.core.reference import Outputs
from rnnconvert.core.weights import Layer, Recurrent
from rnnconvert.formats.cudnn import run_jax as jax
from rnnconvert.formats.keras import run as keras
from rnnconvert.formats.onnx import run as onnxruntime
from rnnconvert.formats.onnx import run_node
from rnnconvert.formats.pytorch import run as pytorch
from rnnconvert.language.layout import Layout
from rnnconvert.language.packing import pack
from rnnconvert.running import registry
from rnnconvert.running.child import missing
from rnnconvert.running.registry import Executor
from rnnconvert.running.sequences import Sequences
from tests import environments
from tests.helpers import jax_cells, ready
from tests.helpers.judging import Problem
from tests.helpers.requirements import need

Run = Callable[[Layout, Problem, Mapping[str, Any]], Outputs]


@dataclass(frozen=True)
class Framework:
    """name as RNNCONVERT_REQUIRE has it, why it cannot run ("" if it can), and how it runs a problem."""

    name: str
    absent: Callable[[], str]
    run: Run

    def solve(self, layout: Layout, problem: Problem, **options: Any) -> Outputs:
        """What the framework makes of a problem whose stack is packed in a layout."""
        need(self.name, self.absent())
        with warnings.catch_warnings():
            # TensorFlow, Keras and JAX warn about their own future while they are imported and traced.
            warnings.filterwarnings("ignore", category=DeprecationWarning)
            warnings.filterwarnings("ignore", category=FutureWarning)
            # PyTorch says once that it takes a slower path, to the same numbers.
            warnings.filterwarnings("ignore", "LSTM with projections is not supported with oneDNN", UserWarning)
            return self.run(layout, problem, options)


def outputs(answer: Mapping[str, Any]) -> Outputs:
    """An executor's answer as the reference gives its own."""
    return Outputs(answer["y"], tuple(answer["hidden"]), tuple(answer["cell"]))


def _in_environment(framework: str, executor: str) -> Executor:
    """An executor in an environment beside this one, which must be there."""
    need(framework, environments.missing(framework))
    runner = replace(registry.built_in()[executor], python=str(environments.place(framework) / "bin" / "python"))
    need(framework, runner.absent)
    return runner


def mxnet(name: str = "mxnet") -> Executor:
    """MXNet under its own Python; "mxnet-native" for its own kernels instead of oneDNN's."""
    return _in_environment("mxnet", name)


def tensorflow1(name: str = "tensorflow1-cpu") -> Executor:
    """TensorFlow 1 under its own Python; "tensorflow1-block" for tf.contrib's block cells."""
    return _in_environment("tensorflow1", name)


def tf_keras() -> Executor:
    """Keras 2, as tf_keras."""
    return _in_environment("tf_keras", "tf_keras")


def by_keras_2(script: str, *words: object) -> None:
    """Run a script under the Python of Keras 2."""
    environment = {"CUDA_VISIBLE_DEVICES": "", "KERAS_BACKEND": "tensorflow", **os.environ}  # that of an upgrade's proof, and its process
    ready.run([tf_keras().python, "-W", "ignore", "-c", script, *words], "tensorflow tf_keras", env=environment, check=True)


def found_by(framework: str, script: str, folder: Path, modules: str = "", **environment: str) -> dict[str, Array]:
    """What a script under a framework's own Python leaves in `found`: arrays by name.

    modules      that the process has imported before; the framework's own if empty
    environment  variables of the process; without any, those of this one
    """
    need(framework, environments.missing(framework))
    python = environments.place(framework).resolve() / "bin" / "python"
    text = f"import numpy as np\n{script}\nnp.savez('found.npz', **found)"
    done = ready.run([python, "-W", "ignore", "-c", text], cwd=folder, env=environment or None, ready=modules or framework)
    assert done.returncode == 0, done.stderr[-2000:]
    with np.load(folder / "found.npz") as archive:
        return dict(archive)


KERAS_WARNS = [pytest.mark.filterwarnings(f"ignore::{kind}") for kind in ("DeprecationWarning", "FutureWarning", "ResourceWarning")]
"""Keras, TensorFlow and h5py warn of their own future while they trace and save."""


JUDGES = {
    "chainer": "chainer",
    "cudnn": "mxnet",
    "equinox": "equinox-cpu",
    "flax": "flax-cpu",
    "haiku": "haiku-cpu",
    "keras": "keras-tensorflow",
    "mxnet": "mxnet-gluon",
    "ncnn": "ncnn-cpu",
    "nnx": "nnx-cpu",
    "onednn": "onednn",
    "onnx": "onnxruntime-cpu",
    "openvino": "openvino-cpu",
    "paddle": "paddle",
    "pytorch": "torch-cpu",
    "tensorflow1": "tensorflow1-cpu",
    "tflite": "litert-cpu",
}
"""For each format the executor that runs its files."""


REQUIREMENTS = {"c": "gcc", "nnx": "flax", "tensorflow2": "keras"}
"""What RNNCONVERT_REQUIRE calls those executors whose names begin with something else."""

ALWAYS = frozenset({"guitarml", "nam", "rtneural"})
"""Executors that are of numpy alone, so that nothing can be absent."""


def let_node_find_tfjs() -> None:
    """Let this process's executors find TensorFlow.js, which must be there."""
    need("tfjs", environments.missing("tfjs"))
    os.environ["NODE_PATH"] = str(environments.place("tfjs") / "node_modules")
    registry.built_in.cache_clear()  # they were asked whether they can run


def executor(name: str) -> Executor:
    """An executor by its name, which must be there: in this Python, or in an environment of its own."""
    family = name.partition("-")[0]
    if family == "tfjs":
        let_node_find_tfjs()
        return registry.built_in()[name]
    if family in environments.MAKERS and family != "cudnn":
        return _in_environment(family, name)
    runner = registry.built_in()[name]
    if family not in ALWAYS:
        need(REQUIREMENTS.get(family, family), runner.absent)
    return runner


def judge(format: str) -> Executor:
    """The executor of a format, which must be there."""
    return executor(JUDGES[format])


def packed(layout: Layout, stack: Recurrent) -> dict[str, Array]:
    """The framework's arrays."""
    return {name: np.asarray(array) for name, array in pack(layout, stack).items()}


def by_layer(solve: Callable[[Problem], Outputs], problem: Problem) -> Outputs:
    """A stack in a framework whose objects hold one layer: each layer reads what the one below gives."""
    x, hidden, cell = problem.x, list[Array](), list[Array]()
    stack = problem.stack
    for index, layer in enumerate(stack.layers):
        rows = slice(index * stack.num_directions, (index + 1) * stack.num_directions)
        states = [None if states is None else states[rows] for states in (problem.hidden, problem.cell)]
        single = replace(problem, stack=Recurrent(stack.name, (layer,)), x=x, hidden=states[0], cell=states[1])
        result = solve(single)
        x = result.y
        hidden += result.hidden
        cell += result.cell
    return Outputs(x, tuple(hidden), tuple(cell))


def sequences(problem: Problem, **more: Any) -> Sequences:
    """What an executor's `run` reads of a problem."""
    return Sequences(problem.x, problem.hidden, problem.cell, problem.lengths, **more)


def _pytorch(layout: Layout, problem: Problem, options: Mapping[str, Any]) -> Outputs:
    return outputs(pytorch.run(packed(layout, problem.stack), sequences(problem), options))


_KERAS = {"rnn": "SimpleRNN", "gru": "GRU", "lstm": "LSTM"}


def _keras(layout: Layout, problem: Problem, options: Mapping[str, Any]) -> Outputs:
    def solve(single: Problem) -> Outputs:
        ways = [Recurrent("", (Layer((way.replace(reverse=False),)),)) for way in single.stack.layers[0].directions]
        mode = {"reset_after": layout.reset_after} if layout.kind == "gru" else {}
        arrays = [packed(layout, way) for way in ways]
        return outputs(keras.run(_KERAS[layout.kind], arrays, {**mode, **options}, sequences(single)))

    return by_layer(solve, problem)


def _onnxruntime(layout: Layout, problem: Problem, options: Mapping[str, Any]) -> Outputs:
    def solve(single: Problem) -> Outputs:
        first, *rest = single.stack.layers[0].directions
        direction = "bidirectional" if rest else "reverse" if first.reverse else "forward"
        mode = {"linear_before_reset": int(bool(layout.reset_after))} if layout.kind == "gru" else {}
        attributes = {"direction": direction, **mode, **options}
        return outputs(run_node.run(layout.kind.upper(), attributes, packed(layout, single.stack), sequences(single)))

    return by_layer(solve, problem)


def _jax(layout: Layout, problem: Problem, options: Mapping[str, Any]) -> Outputs:
    stack = problem.stack
    description = {
        "input_size": stack.input_size, "hidden_size": stack.hidden_size, "num_layers": stack.num_layers,
        "bidirectional": stack.num_directions == 2,
    }  # fmt: skip
    return outputs(jax.run(packed(layout, stack)["params"], description, sequences(problem)))


def _cells_of(make: Any) -> Run:
    """A runner of one layer of one direction, by a framework whose objects are single cells."""

    def run(layout: Layout, problem: Problem, options: Mapping[str, Any]) -> Outputs:
        assert problem.hidden is not None
        states = [problem.hidden[0], *((problem.cell or ())[:1] if layout.kind == "lstm" else ())]
        name = layout.class_name.rpartition(".")[2]
        return jax_cells.run(make, name, packed(layout, problem.stack), problem.x, states, options)

    return run


PYTORCH = Framework("torch", lambda: missing(pytorch.NEEDS), _pytorch)
KERAS = Framework("keras", lambda: missing([*keras.NEEDS, "tensorflow"]), _keras)
ONNXRUNTIME = Framework("onnxruntime", lambda: missing(onnxruntime.NEEDS), _onnxruntime)
JAX = Framework("jax", lambda: missing(jax.NEEDS), _jax)
LINEN = Framework("flax", lambda: missing(["jax", "flax"]), _cells_of(jax_cells.linen))
NNX = Framework("flax", lambda: missing(["jax", "flax"]), _cells_of(jax_cells.nnx))
HAIKU = Framework("haiku", lambda: missing(["jax", "haiku"]), _cells_of(jax_cells.haiku))
EQUINOX = Framework("equinox", lambda: missing(["jax", "equinox"]), _cells_of(jax_cells.equinox))
