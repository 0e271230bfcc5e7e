"""`rnnconvert identify` to its end: what it finds is written, proved on the sample, and read by --layout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core import reference, sample_names
from rnnconvert.core.arrays import Array
from rnnconvert.core.cells import Cell, Kind
from rnnconvert.language import registry
from rnnconvert.language.layout import Sizes
from rnnconvert.running.registry import built_in
from tests.helpers.commands import call
from tests.helpers.drawn import drawn, each
from tests.helpers.requirements import need
from tests.helpers.stacks import BOTH, PLAIN, random_stack

INPUT = PLAIN | {"input_bias"}
X = np.random.default_rng(2).normal(size=(7, 3, 5)).astype(np.float32)


def of(kind: Kind, layers: int = 1, directions: int = 1, reset_after: bool | None = None) -> Any:
    parts = INPUT if reset_after is False else BOTH
    return random_stack(Sizes(kind, 5, 4, layers, directions, 0, parts), 3, np.float32, Cell(kind, reset_after))


STACKS = {
    "lstm": of("lstm"), "bidirectional": of("lstm", 1, 2), "two layers": of("gru", 2, 1, True), "before": of("gru", 1, 1, False),
}  # fmt: skip


def arrays_of(stack: Any) -> list[Array]:
    """The weights in a program's own order: torch's, and for a reset gate before the product Keras's."""
    packed = rc.pack(stack, "keras" if stack.cell.reset_after is False else "pytorch")
    assert isinstance(packed, dict)
    return [np.asarray(array) for array in packed.values()]


def files(folder: Path, stack: Any, flat: bool, **names: str) -> tuple[Path, Path]:
    """A file of weights without names, and a sample."""
    arrays, truth = arrays_of(stack), reference.run(stack, X.astype(np.float64))
    sample, weights = folder / "sample.npz", folder / ("flat.npy" if flat else "weights.npz")
    named: dict[str, Any] = {names.get("x", "x"): X, names.get("y", "y"): truth.y.astype(np.float32)}
    np.savez(sample, **named)
    if flat:
        np.save(weights, np.concatenate([array.ravel() for array in arrays]))
    else:
        np.savez(weights, *arrays)
    return weights, sample


def gives(path: Path, stack: Any, **options: Any) -> None:
    read = rc.load(path, **options)
    x = X.astype(np.float64)
    for layer in read.layers.values():
        x = reference.run(layer, x).y
    assert np.abs(x - reference.run(stack, X.astype(np.float64)).y).max() < 1e-5


def test_a_layout_that_was_found_is_read_whatever_the_arrays_are_called(tmp_path: Path) -> None:
    def check(case: tuple[str, bool]) -> None:
        stack = STACKS[case[0]]
        weights, sample = files(tmp_path, stack, case[1])
        result = call("identify", weights, "--io", sample, "-o", tmp_path / "found.toml")
        assert result.exit_code == 0, result.output
        result = call("convert", weights, tmp_path / "m.onnx", "--layout", tmp_path / "found.toml", "--force")
        assert result.exit_code == 0, result.output
        registry.forget()
        gives(tmp_path / "m.onnx", stack)

    each(drawn([(name, flat) for name in STACKS for flat in (False, True)], 4, "identified and read"), check, str)


@pytest.mark.parametrize("flat", [False, True])
def test_convert_writes_and_proves_what_was_found(flat: bool, tmp_path: Path) -> None:
    need("onnxruntime", built_in()["onnxruntime-cpu"].absent)
    stack = STACKS["bidirectional"]
    weights, sample = files(tmp_path, stack, flat, x="input", y="output")
    result = call("identify", weights, "--io", sample, "--convert", tmp_path / "m.onnx")
    assert result.exit_code == 0 and "B on onnxruntime-cpu  equal" in result.output, result.output
    assert "m.onnx gives the same for their input" in result.output and "own file" not in result.output
    gives(tmp_path / "m.onnx", stack)
    assert call("identify", weights, "--io", sample, "--convert", tmp_path / "m.onnx").exit_code == 2
    result = call("identify", weights, "--io", sample, "--convert", tmp_path / "m.onnx", "--force", "--json")
    document = json.loads(result.stdout)
    assert document["written"] and document["verification"]["verdict"] == "equal"
    result = call("identify", weights, "--io", sample, "--convert", tmp_path / "m.safetensors", "--to", "pytorch")
    assert result.exit_code == 0 and rc.load(tmp_path / "m.safetensors").format == "pytorch"
    assert not registry.installed_layouts()


def test_what_is_not_identified_is_not_written(tmp_path: Path) -> None:
    stack = STACKS["lstm"]
    weights, sample = files(tmp_path, stack, False)
    with np.load(sample) as arrays:
        short, wrong = ({name: array[:1] for name, array in arrays.items()}, dict(arrays))
    wrong["y"] = wrong["y"][::-1] * 0.3
    for name, sample_arrays in (("short", short), ("wrong", wrong)):
        np.savez(tmp_path / f"{name}.npz", **sample_arrays)
        result = call("identify", weights, "--io", tmp_path / f"{name}.npz", "--convert", tmp_path / "m.onnx", "--seconds", 2)
        assert result.exit_code == 1 and "was not written" in result.output and not (tmp_path / "m.onnx").exists(), name
    assert "outputs of three steps or more" in call("identify", weights, "--io", tmp_path / "short.npz").output


@pytest.mark.parametrize(
    ("words", "message"),
    [(("--convert", "m.onnx"), "Give one with --io"), (("--force",), "belong to --convert"), (("--to", "onnx"), "belong to --convert")],
)  # fmt: skip
def test_options_that_would_do_nothing_are_refused(words: tuple[str, ...], message: str, tmp_path: Path) -> None:
    weights, _ = files(tmp_path, STACKS["lstm"], False)
    result = call("identify", weights, *words)
    assert result.exit_code == 2 and message in result.output


def test_a_sample_has_one_vocabulary_everywhere(tmp_path: Path) -> None:
    """Our words, ONNX's, PyTorch's and Keras's, in any case: for identify, for diagnose and for the inputs of verify."""
    stack = STACKS["lstm"].replace(name="lstm")
    rc.save(rc.Checkpoint("memory", "", {"lstm": stack}), tmp_path / "m.onnx")
    weights, _ = files(tmp_path, stack, False)
    h, c = (np.random.default_rng(seed).normal(size=(1, 3, 4)).astype(np.float32) for seed in (1, 2))
    truth = reference.run(stack, X.astype(np.float64), list(h.astype(np.float64)), list(c.astype(np.float64)))
    sample = {"x": X, "y": truth.y.astype(np.float32), "h_0": h, "c_0": c}

    def check(names: dict[str, str]) -> None:
        named: dict[str, Any] = {names.get(name, name): array for name, array in sample.items()}
        np.savez(tmp_path / "s.npz", **named)
        assert rc.identify(weights, io=tmp_path / "s.npz").verdict == "identified"
        assert rc.diagnose(tmp_path / "m.onnx", io=tmp_path / "s.npz").equal
        report = rc.verify(tmp_path / "m.onnx", inputs=str(tmp_path / "s.npz"), on=["onnxruntime-cpu"])
        assert report.equal and any("not compared" in warning and "diagnose" in warning for warning in report.document["warnings"])

    need("onnxruntime", built_in()["onnxruntime-cpu"].absent)
    each(
        [{}, {"x": "input", "y": "output", "h_0": "h0", "c_0": "c0"}, {"x": "X", "y": "Y", "h_0": "initial_h", "c_0": "initial_c"},
         {"x": "input_batch", "y": "output_batch", "h_0": "hidden", "c_0": "cell"}, {"h_0": "hx", "c_0": "cx"}],
        check, str,
    )  # fmt: skip
    for names in sample_names.NAMES.values():
        assert all(name == name.lower() for name in names)
    cases: list[tuple[dict[str, Any], str]] = [
        ({"x": X, "outptu": X}, "has an array 'outptu'"),
        ({"x": X, "input": X}, "both 'x' and 'input'"),
        ({"y": X}, "x"),
    ]
    for wrong, message in cases:
        np.savez(tmp_path / "s.npz", **wrong)
        for words in (
            ("identify", weights, "--io"),
            ("diagnose", tmp_path / "m.onnx", "--io"),
            ("verify", tmp_path / "m.onnx", "--inputs"),
        ):
            result = call(*words, tmp_path / "s.npz")
            assert result.exit_code in (2, 3) and message in result.output, (words, result.output)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("start = 0", "start = 4000"), "which ends before it"), (('from = "0"', 'from = "1"'), "there is no such array"),
        (("start = 0", "start = -1"), "start is -1"), (("steps = [5, 1]", "steps = [5]"), "as many steps"),
        (("steps = [5, 1]", "steps = [1000000, 1]"), "which ends before it"), (("shape = [4, 5]", "shape = [4, 0]"), "shape is"),
        (('from = "0"', "from = 3"), "expected a name"), (("start = 0", "begin = 0"), "unknown field 'begin'"),
        (("shape = [4, 5]", 'shape = "4"'), "expected a list"),
    ],
)  # fmt: skip
def test_a_layout_file_with_wrong_places_is_refused(change: tuple[str, str], message: str, tmp_path: Path) -> None:
    weights, sample = files(tmp_path, STACKS["lstm"], True)
    path = tmp_path / "found.toml"
    assert call("identify", weights, "--io", sample, "-o", path).exit_code == 0
    text = path.read_text()
    assert change[0] in text, text
    path.write_text(text.replace(*change, 1))
    result = call("convert", weights, tmp_path / "m.onnx", "--layout", path, "--from", "found")
    registry.forget()
    assert result.exit_code == 3 and message in result.output, result.output


def test_what_no_cut_takes_stays(tmp_path: Path) -> None:
    """A vector that holds more than the layer is not silently dropped."""
    weights, sample = files(tmp_path, STACKS["lstm"], True)
    assert call("identify", weights, "--io", sample, "-o", tmp_path / "found.toml").exit_code == 0
    rc.add_layouts(tmp_path / "found.toml")
    try:
        assert not rc.load(weights).tensors
        np.save(tmp_path / "longer.npy", np.concatenate([np.load(weights), np.ones(9, np.float32)]))
        assert list(rc.load(tmp_path / "longer.npy").tensors) == ["0"]
    finally:
        registry.forget()


def test_inspect_names_identify_for_arrays_of_unknown_origin(tmp_path: Path) -> None:
    for flat in (False, True):
        weights, _ = files(tmp_path, STACKS["lstm"], flat)
        result = call("inspect", weights)
        assert result.exit_code == 3 and f"rnnconvert identify {weights}" in result.output.replace("\n", " ")


def test_sizes_that_are_known_leave_fewer_candidates(tmp_path: Path) -> None:
    length = 4 * 16 * (4 + 16) + 2 * 4 * 16
    np.save(tmp_path / "flat.npy", np.random.default_rng(0).normal(size=length).astype(np.float32))
    every = json.loads(call("identify", tmp_path / "flat.npy", "--json").stdout)["candidates"]
    words = [word for size in ("hidden_size=16", "input_size=4", "bidirectional=false") for word in ("--set", size)]
    few = json.loads(call("identify", tmp_path / "flat.npy", *words, "--json").stdout)["candidates"]
    assert 0 < len(few) < len(every) / 10 and all("4 -> 16" in candidate["sizes"] for candidate in few)
    assert any("cudnn.lstm" in candidate["layouts"] for candidate in few)


@pytest.mark.parametrize(
    ("word", "message"),
    [("hiden_size=16", "Did you mean 'hidden_size'?"), ("hidden_size=x", "expected a whole number"), ("hidden_size", "expected KEY=VALUE"),
     ("bidirectional=2", "expected true or false"), ("num_layers=true", "expected a whole number")],
)  # fmt: skip
def test_a_size_that_is_none_is_named(word: str, message: str, tmp_path: Path) -> None:
    np.save(tmp_path / "flat.npy", np.ones(64, np.float32))
    done = call("identify", tmp_path / "flat.npy", "--set", word)
    assert done.exit_code == 2 and message in done.stderr


def test_a_sample_decides_the_sizes(tmp_path: Path) -> None:
    np.savez(tmp_path / "s.npz", x=np.ones((3, 1, 2), np.float32), y=np.ones((3, 1, 2), np.float32))
    with pytest.raises(rc.UsageError, match="a sample shows the sizes"):
        rc.identify({"a": np.ones(64, np.float32)}, io=tmp_path / "s.npz", sizes={"hidden_size": 2})


@pytest.mark.parametrize("dtype", ["<f4", "<f8"])
def test_bare_numbers_in_a_file_are_weights_without_a_header(dtype: str, tmp_path: Path) -> None:
    stack = STACKS["bidirectional"]
    _, sample = files(tmp_path, stack, flat=True)
    raw = tmp_path / "weights.bin"
    np.concatenate([array.ravel() for array in arrays_of(stack)]).astype(dtype).tofile(raw)
    assert call("identify", raw, "--io", sample, "--convert", tmp_path / "m.pt").exit_code == 0
    gives(tmp_path / "m.pt", stack)


def test_bytes_that_are_no_weights_are_not_identified(tmp_path: Path) -> None:
    _, sample = files(tmp_path, STACKS["lstm"], flat=True)
    (tmp_path / "any.bin").write_bytes(np.random.default_rng(1).bytes(640))
    with pytest.raises(rc.UnreadableError, match="no known format"):
        rc.identify(tmp_path / "any.bin", io=sample)
