"""Graphs of ONNX made by hand as files of every target: run beside onnxruntime, or refused by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto

import rnnconvert as rc
from rnnconvert.scaffolding.inputs import drawn as inputs_drawn
from rnnconvert.scaffolding.sources import described_source
from tests.helpers.drawn import drawn, each
from tests.helpers.onnx_graphs import GRAPHS, OPERATORS, RECURRENT, op, recurrent, saved
from tests.helpers.requirements import needed
from tests.scaffolding.test_scaffold_targets import TARGETS, require

pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The structure of `inputs`:UserWarning"),
]
ALL = {**GRAPHS, **OPERATORS, **{name: graph for name, graph in RECURRENT.items() if name != "a learned state"}}
_TURNED = {
    **dict.fromkeys(("transposed groups", "transposed, places apart in groups"), "a transposed convolution in groups"),
    "pool dilated": "a pool over places apart",
    "gather elements of a part": "elements taken from a part",
}
"""What no layer with its channels at the end has, nor a function as numpy's."""
REFUSED: dict[str, dict[str, str]] = {
    "pytorch": {},
    "keras": {
        **_TURNED,
        "mod": "remainder towards zero",
        "pad edge": "padding of mode 'edge'",
        "range": "a length that a run decides",
        "clipped": "clipped",
        "clipped both ways": "clipped",
        "clipped after": "clipped",
    },
    "flax": {**_TURNED, "prelu": "several slopes"},
}


@pytest.mark.parametrize("target", TARGETS)
def test_graphs_are_equal_or_refused_by_name(tmp_path: Path, target: str) -> None:
    require(target)
    needed("onnxruntime", "onnxruntime")

    def check(name: str) -> None:
        path, written = saved(tmp_path / f"{name}.onnx", *ALL[name]), tmp_path / f"{name}.py"
        if name in REFUSED[target]:
            with pytest.raises(rc.RefusedError, match=REFUSED[target][name]):
                rc.scaffold(path, target, written)
            assert not written.exists()
            return
        assert rc.scaffold(path, target, written, verify=True).equal

    each(drawn(ALL, 60 if target == "pytorch" else 20, f"graphs {target}"), check)


def test_graphs_are_written_as_graphs(tmp_path: Path) -> None:
    """Every operator that is described is written: onnxruntime gives the same for both."""
    runtime = needed("onnxruntime", "onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = 4

    def check(name: str) -> None:
        path = saved(tmp_path / f"{name}.onnx", *ALL[name])
        rc.export_model(path, tmp_path / "again.onnx", force=True)
        first, again = (runtime.InferenceSession(file, options) for file in (path, tmp_path / "again.onnx"))
        for arrays in inputs_drawn(described_source(path).description):
            ends = [
                session.run(None, dict(zip([value.name for value in session.get_inputs()], arrays, strict=True)))
                for session in (first, again)
            ]
            for expected, output in zip(*ends, strict=True):
                assert output.dtype == expected.dtype
                np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-5)

    each(ALL, check)


@pytest.mark.parametrize("kind", ["Relu", "Exp", "Clip", "Transpose", "ReduceMax", "Softmax"])
def test_an_attribute_that_is_not_read_is_refused_by_name(kind: str, tmp_path: Path) -> None:
    """It may change what the operator computes: a bound of a Clip once was left out."""
    path = saved(tmp_path / "m.onnx", *op(kind, ["b", 4, 3], bend=2.0))
    with pytest.raises(rc.RefusedError, match=f"the attribute 'bend' of the operator {kind}"):
        rc.export_model(path, tmp_path / "again.onnx")
    assert not (tmp_path / "again.onnx").exists()


@pytest.mark.parametrize("target", TARGETS)
def test_lengths_of_sequences(tmp_path: Path, target: str) -> None:
    require(target)
    needed("onnxruntime", "onnxruntime")
    ways = "forward" if target == "keras" else "bidirectional"  # Keras's Bidirectional keeps nothing at masked steps
    nodes, inputs, outputs, arrays, opset = recurrent("GRU", ["lengths"], {}, linear_before_reset=1, direction=ways)
    inputs |= {"lengths": ["b"]}
    path = saved(tmp_path / "m.onnx", nodes, inputs, outputs, arrays, opset, {"lengths": TensorProto.INT32})
    assert rc.scaffold(path, target, tmp_path / "m.py", verify=True).equal


def test_convolutions_in_a_row_are_not_turned_in_between(tmp_path: Path) -> None:
    path = saved(tmp_path / "m.onnx", *OPERATORS["conv chain"])
    text = rc.scaffold(path, "keras").text
    assert text.count("Permute") == 1 and "GlobalAveragePooling1D" in text
