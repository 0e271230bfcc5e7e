"""What is written of a small file is bounded, too: operators and strides of nothing state numbers that no file has."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import rnnconvert as rc
from rnnconvert.containers import json_file, reading
from rnnconvert.core.errors import BudgetError, RnnConvertError
from rnnconvert.core.limits import OUTPUT, OUTPUT_PER_BYTE
from rnnconvert.language import registry
from tests.helpers.drawn import each
from tests.helpers.requirements import needed

UNITS, INPUTS = 1, 100_000
MANY = 4 * UNITS * INPUTS
"""The numbers of the matrix that each of these states."""
Form = tuple[dict[str, Any], list[tuple[str, list[str], dict[str, Any]]]]
SHAPE = np.array([1, 4 * UNITS, INPUTS])
ROW = SHAPE[[0, 0, 2]]
THIRD = np.full((1, 4, 1), 1 / 3, np.float32)
FORMS: dict[str, Form] = {
    "Expand": ({"a": THIRD, "s": SHAPE}, [("Expand", ["a", "s"], {})]),
    "ConstantOfShape": ({"s": SHAPE}, [("ConstantOfShape", ["s"], {"value": onnx.numpy_helper.from_array(np.array([1 / 3], np.float32))})]),
    "Tile": ({"a": THIRD, "s": np.array([1, 1, INPUTS])}, [("Tile", ["a", "s"], {})]),
    "Pad": ({"a": THIRD, "s": np.array([0, 0, 0, 0, 0, INPUTS - 1])}, [("Pad", ["a", "s"], {})]),
    "Range": (
        {"a": np.float32(0), "b": np.float32(MANY), "c": np.float32(1), "s": SHAPE},
        [("Range", ["a", "b", "c"], {}), ("Reshape", ["t0", "s"], {})],
    ),
    "Resize": ({"a": THIRD, "": np.array([]), "s": SHAPE}, [("Resize", ["a", "", "", "s"], {"mode": "nearest"})]),
    "Gather": (
        {"a": THIRD, "s": np.array([INPUTS])},
        [("ConstantOfShape", ["s"], {}), ("Cast", ["t0"], {"to": 7}), ("Gather", ["a", "t1"], {"axis": 2})],
    ),
    "OneHot": (
        {"i": np.array([[1, 2, 3, 0]]), "n": np.array(INPUTS), "v": np.array([0, 1 / 3], np.float32)},
        [("OneHot", ["i", "n", "v"], {})],
    ),
    "Add": ({"a": THIRD, "b": np.ones((1, 1, 1), np.float32), "s": ROW}, [("Expand", ["b", "s"], {}), ("Add", ["a", "t0"], {})]),
    "Concat": (
        {"a": np.full((1, 4, INPUTS >> 10), 1 / 3, np.float32), "z": np.full((1, 4, INPUTS - (INPUTS >> 10 << 10)), 0.5, np.float32)},
        [*(("Concat", [f"t{n - 1}" if n else "a"] * 2, {"axis": 2}) for n in range(10)), ("Concat", ["t9", "z"], {"axis": 2})],
    ),
    "MatMul": ({"a": THIRD, "b": np.ones((1, 1, 1), np.float32), "s": ROW}, [("Expand", ["b", "s"], {}), ("MatMul", ["a", "t0"], {})]),
}


def written_form(name: str, path: Path) -> Path:
    """Write an LSTM whose weights one operator states."""
    arrays, nodes = FORMS[name]
    layers = [onnx.helper.make_node(kind, inputs, [f"t{n}"], **attributes) for n, (kind, inputs, attributes) in enumerate(nodes)]
    arrays = {**{key: array for key, array in arrays.items() if key}, "R": np.ones((1, 4, 1), np.float32)}
    layers.append(onnx.helper.make_node("LSTM", ["x", f"t{len(nodes) - 1}", "R"], ["y"], hidden_size=UNITS))
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        layers,
        "g",
        [value("x", onnx.TensorProto.FLOAT, ["t", 1, INPUTS])],
        [value("y", onnx.TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(np.asarray(array), key) for key, array in arrays.items()],
    )
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8), path)
    return path


def with_constant(path: Path) -> Path:
    """Write an LSTM whose outputs meet a matrix that an operator states."""
    arrays = {"W": np.ones((1, 4, 3), np.float32), "R": np.ones((1, 4, 1), np.float32), "a": np.full((1, 1), 1 / 3, np.float32)}
    arrays |= {"s": np.array([1, INPUTS]), "axis": np.array([1])}
    node, value = onnx.helper.make_node, onnx.helper.make_tensor_value_info
    nodes = [
        node("LSTM", ["x", "W", "R"], ["h"], hidden_size=1),
        node("Squeeze", ["h", "axis"], ["h2"]),
        node("Expand", ["a", "s"], ["m"]),
        node("MatMul", ["h2", "m"], ["y"]),
    ]
    inputs, outputs = [value("x", onnx.TensorProto.FLOAT, ["t", 1, 3])], [value("y", onnx.TensorProto.FLOAT, None)]
    graph = onnx.helper.make_graph(nodes, "g", inputs, outputs, [onnx.numpy_helper.from_array(array, key) for key, array in arrays.items()])
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8), path)
    return path


def size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def test_numbers_that_operators_state_are_written_within_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every operator of FORMS, as text and as numbers: refused, or no more than is allowed."""
    monkeypatch.setattr(reading, "OUTPUT", 1 << 16)
    refused = []

    def check(name: str) -> None:
        source = written_form(name, tmp_path / f"{name}.onnx")
        for ending in (".h", ".safetensors"):
            out = tmp_path / f"{name}{ending}"
            try:
                rc.convert(source, out, target_format="c_header" if ending == ".h" else "pytorch")
            except BudgetError:
                refused.append(name)
            except RnnConvertError:
                pass
            assert not out.exists() or out.stat().st_size <= (1 << 16) + OUTPUT_PER_BYTE * source.stat().st_size, ending

    each(FORMS, check, str)
    assert {"Expand", "ConstantOfShape", "Pad", "Gather", "Concat"} <= set(refused)


def test_every_format_is_written_within_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One column of weights that a stride of nothing repeats; each target that is written without bounds takes many times as much."""
    torch = needed("torch", "torch")
    state = torch.nn.LSTM(1, 1).state_dict()
    state["weight_ih_l0"] = state["weight_ih_l0"].expand(4, INPUTS)
    source = tmp_path / "m.pt"
    torch.save({f"rnn.{name}": array for name, array in state.items()}, source)
    most = 1 << 16
    targets = {f"{card.name}{end}": (card.name, end) for card in registry.cards().values() for end in card.written}
    monkeypatch.setattr(reading, "OUTPUT", most)
    refused = []

    def check(name: str) -> None:
        format, ending = targets[name]
        out = tmp_path / name
        out.mkdir()
        try:
            rc.convert(source, out / f"m{ending}", target_format=format)
        except BudgetError as error:
            refused.append(name)
            assert "m.pt" in str(error) and "written out" in str(error)
            assert not size(out), "something is left"
        except RnnConvertError:
            pass
        assert size(out) <= most + OUTPUT_PER_BYTE * source.stat().st_size

    each(targets, check, str)
    assert len(refused) > len(targets) / 2, sorted(set(targets) - set(refused))


def test_whole_models_are_written_within_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A constant beside a layer, for every target of whole models, and as weights beside code."""
    needed("torch", "torch")
    source = with_constant(tmp_path / "m.onnx")
    monkeypatch.setattr(reading, "OUTPUT", 1 << 16)
    uses: dict[str, Callable[[], object]] = {
        ending: partial(rc.export_model, source, tmp_path / f"m2{ending}") for ending in (".onnx", ".tflite", ".mlpackage", ".xml")
    }
    uses["tfjs"] = partial(rc.export_model, source, tmp_path / "m2.json", format="tfjs")
    uses["weights"] = lambda: rc.scaffold(source, "pytorch", weights=tmp_path / "w.pt")

    def check(name: str) -> None:
        with pytest.raises(BudgetError, match="to write"):
            uses[name]()

    each(uses, check, str)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.onnx"]


def test_what_states_all_of_its_numbers_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The way out that the refusal names; and numbers in memory are nobody's trick."""
    torch = needed("torch", "torch")
    monkeypatch.setattr(reading, "OUTPUT", 1 << 16)
    state = torch.nn.LSTM(1000, 20).state_dict()
    torch.save(state, tmp_path / "m.pt")
    rc.convert(tmp_path / "m.pt", tmp_path / "m.h")
    rc.save(rc.Checkpoint("memory", "memory", rc.from_model(torch.nn.LSTM(1000, 20))), tmp_path / "live.h")
    assert (tmp_path / "m.h").stat().st_size > 1 << 18 and (tmp_path / "live.h").stat().st_size > 1 << 18


def test_a_small_file_makes_no_large_header(tmp_path: Path) -> None:
    """With the limits as they are, from the command line: 300 bytes that state six million numbers of eight digits."""
    source = tmp_path / "m.onnx"
    written_form("Expand", source)
    model = onnx.load(source)
    large = next(tensor for tensor in model.graph.initializer if tensor.name == "s")
    large.CopyFrom(onnx.numpy_helper.from_array(np.array([1, 4, 1_500_000]), "s"))
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_value = 1_500_000
    onnx.save(model, source)
    words = [sys.executable, "-m", "rnnconvert", "convert", str(source), str(tmp_path / "m.h")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=200)
    assert done.returncode == 3 and f"{OUTPUT >> 20} MiB to write" in done.stderr, done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.onnx"]


def test_text_of_more_than_may_be_written_is_refused_before_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """JSON states each number in several bytes: what numbers take is known from how many there are, and from those that recur."""
    written: list[int] = []
    shortest = json_file.shortest

    def counted(numbers: Any) -> list[str]:
        written.append(numbers.size)
        return shortest(numbers)

    monkeypatch.setattr(reading, "OUTPUT", 1 << 20)
    monkeypatch.setattr(json_file, "shortest", counted)
    for name in ("Expand", "Pad", "Concat"):
        source = written_form(name, tmp_path / f"{name}.onnx")
        for format in ("rtneural", "guitarml"):
            written.clear()
            with pytest.raises(BudgetError, match="to write"):
                rc.convert(source, tmp_path / "o.json", target_format=format)
            assert sum(written) < MANY // 10, (name, format, sum(written))


@pytest.mark.parametrize("shape", [(), (0,), (5,), (3, 0), (0, 3), (7, 3), (2, 3, 4), (40_000, 2), (2, 20_000), (3, 2, 9000)])
def test_arrays_in_json_are_the_arrays(shape: tuple[int, ...], tmp_path: Path) -> None:
    array = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    json_file.write(tmp_path / "a.json", {"a": array})
    text = (tmp_path / "a.json").read_text()
    again = np.array(json.loads(text)["a"], np.float32)
    np.testing.assert_array_equal(again.reshape(array.shape), array)
    assert again.shape == (array.shape or (1,)) or not array.size
    assert len(text) >= json_file.least_text(array) - len(", ")
