"""Conservation for ONNX: change, remove or add any one fact of a recurrent node, and what is read follows.

Each case has one attribute, input or constant that differs from a plain node. What is read then agrees with onnxruntime's own
run, or the file is refused, or a question or a warning names the fact. Never the old numbers in silence.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from rnnconvert.core import reference
from rnnconvert.core.arrays import Array
from rnnconvert.core.cells import Activation, Cell
from rnnconvert.core.errors import RefusedError, RnnConvertError
from rnnconvert.files.load import load

KINDS = {"RNN": 1, "GRU": 3, "LSTM": 4}
INPUTS = {kind: ["X", "W", "R", "B", "sequence_lens", "initial_h"] for kind in KINDS}
INPUTS["LSTM"] += ["initial_c", "P"]
HIDDEN, WIDTH, TIME, BATCH = 4, 3, 4, 2
FUNCTIONS = ("Relu", "Tanh", "Sigmoid", "Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh", "HardSigmoid", "Elu",
             "Softsign", "Softplus")  # fmt: skip
WIDTHS = {"RNN": 1, "GRU": 2, "LSTM": 3}


@dataclass(frozen=True)
class Fact:
    """One fact of a node, and what the node is with it.

    name        what it is called
    kind        the operator
    attributes  all of the node's attributes
    arrays      all of its constant inputs
    opset       the version of the default operators
    domain      the node's domain
    behind      further names of inputs behind those that the operator has
    """

    name: str
    kind: str
    attributes: dict[str, Any]
    arrays: dict[str, Array] = field(hash=False)
    opset: int = 17
    domain: str = ""
    behind: tuple[str, ...] = ()

    def changed(
        self,
        name: str,
        change: dict[str, Any] | None = None,
        more: dict[str, Array] | None = None,
        without: tuple[str, ...] = (),
        **rest: Any,
    ) -> Fact:
        """The node with other attributes, more arrays, or without some of either."""
        now = {key: value for key, value in (self.attributes | (change or {})).items() if key not in without}
        arrays = {key: value for key, value in (self.arrays | (more or {})).items() if key not in without}
        return Fact(f"{self.name} {name}", self.kind, now, arrays, **rest)

    def save(self, path: Path) -> Path:
        names = [name if name in self.arrays or name == "X" else "" for name in INPUTS[self.kind]]
        while not names[-1] and not self.behind:
            names.pop()
        node = helper.make_node(self.kind, [*names, *self.behind], ["Y"], "layer", domain=self.domain, **self.attributes)
        values = [helper.make_tensor_value_info(n, 1, shape) for n, shape in (("X", (None, None, WIDTH)), ("Y", None))]
        tensors = [numpy_helper.from_array(array, name) for name, array in self.arrays.items()]
        graph = helper.make_graph([node], "one", values[:1], values[1:], tensors)
        domains = [helper.make_opsetid("", self.opset), *([helper.make_opsetid(self.domain, 1)] if "." in self.domain[3:] else [])]
        onnx.save(helper.make_model(graph, opset_imports=domains, ir_version=8), path)
        return path


def plain(kind: str, direction: str = "forward") -> tuple[dict[str, Any], dict[str, Array]]:
    """A node's attributes and constants, large enough for every function and bound to show."""
    generator = np.random.default_rng(11)
    ways, rows = 2 if direction == "bidirectional" else 1, KINDS[kind] * HIDDEN

    def normal(*shape: int) -> Array:
        return (generator.normal(size=shape) * 0.5).astype(np.float32)

    arrays = {"W": normal(ways, rows, WIDTH), "R": normal(ways, rows, HIDDEN), "B": normal(ways, 2 * rows)}
    return {"hidden_size": HIDDEN, "direction": direction}, arrays


def facts() -> Iterator[Fact]:
    """Every attribute of the schema with other values, each input, unknown attributes, domains and inputs."""
    generator = np.random.default_rng(12)

    def normal(*shape: int) -> Array:
        return generator.normal(size=shape).astype(np.float32)

    for kind in KINDS:
        for direction in ("forward", "reverse", "bidirectional"):
            attributes, arrays = plain(kind, direction)
            ways = len(arrays["W"])

            fact = Fact(f"{kind} {direction}", kind, attributes, arrays).changed
            yield fact("as it is")
            for opset in (7, 10, 14, 22):
                yield fact(f"opset {opset}", opset=opset)
            yield fact("without hidden_size", without=("hidden_size",))
            yield fact("without a direction", without=("direction",))
            yield fact("hidden_size 5", {"hidden_size": 5})
            yield fact("no direction that there is", {"direction": "sideways"})
            yield fact("a spelling", {"direction": direction.upper()})
            for bound in (0.05, 0.5, 3.0, 0.0, -1.0):
                yield fact(f"clip {bound}", {"clip": bound})
            yield fact("clip that is no float", {"clip": 1})
            yield fact("layout 1", {"layout": 1})
            yield fact("output_sequence", {"output_sequence": 1})
            for value in (0, 1, 2):
                yield fact(f"input_forget {value}", {"input_forget": value})
                yield fact(f"linear_before_reset {value}", {"linear_before_reset": value})
            for function in FUNCTIONS:
                names = ["Sigmoid", "Tanh", "Tanh"][3 - WIDTHS[kind] if kind != "GRU" else 0 :][: WIDTHS[kind]]
                for place in range(WIDTHS[kind]):
                    functions = [*names[:place], function, *names[place + 1 :]]
                    yield fact(f"{function} at {place}", {"activations": functions * ways})
                    constants = {"activation_alpha": [0.3] * ways, "activation_beta": [0.4] * ways}
                    yield fact(f"{function}(0.3, 0.4) at {place}", {"activations": functions * ways, **constants})
                    yield fact(f"{function} at {place} with alpha", {"activations": functions * ways, "activation_alpha": [0.3] * ways})
            yield fact("a spelling of functions", {"activations": [name.lower() for name in names] * ways})
            if len(names) * ways > 1:
                yield fact("too few functions", {"activations": (names * ways)[:-1]})
            yield fact("too many functions", {"activations": [*names * ways, "Tanh"]})
            yield fact("a function that there is not", {"activations": ["Swish"] * WIDTHS[kind] * ways})
            yield fact("constants without functions", {"activation_alpha": [0.3], "activation_beta": [0.4]})
            yield fact("an unknown attribute", {"zoneout": 0.5})
            yield fact("an unknown domain", domain="com.example")
            yield fact("the long name of the domain", domain="ai.onnx")
            yield fact("an input too many", more={"Q": normal(3)}, behind=("Q",))
            yield fact("without B", without=("B",))
            yield fact("without W", without=("W",))
            yield fact("zeros for B", more={"B": np.zeros_like(arrays["B"])})
            for name in ("W", "R", "B"):
                yield fact(f"another {name}", more={name: normal(*arrays[name].shape)})
            yield fact("sequence_lens", more={"sequence_lens": np.array([TIME, TIME - 3], np.int32)})
            yield fact("full sequence_lens", more={"sequence_lens": np.full(BATCH, TIME, np.int32)})
            states = ("initial_h", "initial_c")[: 2 if kind == "LSTM" else 1]
            for name in states:
                row = normal(ways, 1, HIDDEN)
                yield fact(f"{name} zero", more={name: np.zeros((ways, BATCH, HIDDEN), np.float32)})
                yield fact(f"{name} alike", more={name: np.repeat(row, BATCH, 1)})
                yield fact(f"{name} unlike", more={name: normal(ways, BATCH, HIDDEN)})
            if kind == "LSTM":
                yield fact("P", more={"P": normal(ways, 3 * HIDDEN)})
                yield fact("P zero", more={"P": np.zeros((ways, 3 * HIDDEN), np.float32)})
                yield fact("P and input_forget", {"input_forget": 1}, {"P": normal(ways, 3 * HIDDEN)})


def every() -> list[Fact]:
    return list(facts())


# The ONNX text has these, and onnxruntime does not, or has them in one spelling: which numbers they mean is clear.
CLEAR = ("without hidden_size", "a spelling", "a spelling of functions", "output_sequence")


def ran(path: Path, x: Array) -> Array | None:
    """What onnxruntime makes of a model, or None if it does not run it."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        return np.asarray(session.run(None, {"X": x})[0])
    except Exception:  # it has exceptions of its own, of no common kind
        return None


def functions(cell: Cell) -> tuple[Activation, ...]:
    return cell.activation, cell.gate_activation, cell.output_activation


def follows(fact: Fact, path: Path) -> str:
    """Whether what is read agrees, is refused, asked about or warned of; what is wrong, or ""."""
    x = (np.random.default_rng(13).normal(size=(TIME, BATCH, WIDTH))).astype(np.float32)
    try:
        checkpoint = load(fact.save(path))
    except RnnConvertError:
        return ""
    if checkpoint.questions or checkpoint.unread:
        return ""
    (stack,) = checkpoint.layers.values()
    if stack.unconvertible:
        return ""
    wanted = ran(path, x)
    word = fact.name.split()[-1 if fact.name.endswith("sequence_lens") else 2]
    if any(word in warning for warning in checkpoint.warnings):
        return ""
    if not all(activation.known for _, _, d in stack.directions() for activation in functions(d.cell)):
        return ""  # carried, and refused wherever it would be run or written
    if wanted is None:
        if fact.name.split(" ", 2)[2] in CLEAR:
            return ""
        return "it is read without a word, and onnxruntime does not run it"
    outputs = np.asarray(reference.run(stack, x).y)
    expected = np.concatenate(list(wanted.swapaxes(0, 1)), -1) if wanted.ndim == 4 else wanted
    if outputs.shape != expected.shape:
        return f"shape {outputs.shape}, expected {expected.shape}"
    off = float((np.abs(outputs - expected) / np.maximum(1, np.abs(expected))).max())
    return f"{off:.3g} off" if not off < 1e-4 else ""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_every_fact_of_a_node_is_followed(tmp_path: Path, kind: str, direction: str) -> None:
    chosen = [fact for fact in every() if fact.name.startswith(f"{kind} {direction} ")]
    assert len(chosen) > 60
    wrong = {fact.name: problem for fact in chosen if (problem := follows(fact, tmp_path / "m.onnx"))}
    assert not wrong


def test_a_bound_that_means_nothing_is_left_out_where_one_says_so(tmp_path: Path) -> None:
    (fact,) = (candidate for candidate in every() if candidate.name == "LSTM forward clip 0.0")
    path = fact.save(tmp_path / "m.onnx")
    with pytest.raises(RefusedError, match="a clip of 0"):
        load(path)
    checkpoint = load(path, clip="none")
    assert not checkpoint.layers["layer"].cell.clips
    assert any("clip of 0" in warning for warning in checkpoint.warnings)


def test_what_is_not_known_of_a_node_is_named(tmp_path: Path) -> None:
    named = {"an unknown attribute": "'zoneout'", "clip that is no float": "'clip'", "an input too many": "inputs"}
    for fact in every():
        word = named.get(fact.name.split(" ", 2)[2])
        if word:
            with pytest.raises(RefusedError, match=word):
                load(fact.save(tmp_path / "m.onnx"))
