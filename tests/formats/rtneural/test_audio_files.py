"""RTNeural's JSON, GuitarML's and Neural Amp Modeler's: real models give their outputs, and Keras and torch run the same numbers."""

from __future__ import annotations

import copy
import json
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.containers import json_file
from rnnconvert.core import reference
from rnnconvert.core.arrays import Array
from rnnconvert.core.reference import Outputs
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.formats.c_header import whole_run
from rnnconvert.formats.c_header.run import absent
from rnnconvert.language.layout import Sizes
from tests import ROOT
from tests.helpers import corpus
from tests.helpers.commands import call
from tests.helpers.judging import WRONG, Problem, excess
from tests.helpers.requirements import need, needed
from tests.helpers.stacks import BOTH, PLAIN, random_stack

X = np.random.default_rng(1).uniform(-1, 1, (7, 2, 3)).astype(np.float32)


def off(stack: Recurrent, x: Array, y: Array) -> float:
    """How far outputs (time, batch, out) are from what a stack computes, in units of what rounding explains."""
    problem = Problem(stack, x)
    solved = problem.solved()
    assert y.shape == solved.y.shape
    return excess(problem, Outputs(y, solved.hidden, solved.cell))


def only(path: Path, **options: Any) -> Recurrent:
    (stack,) = rc.load(path, **options).layers.values()
    return stack


def memory(*stacks: Recurrent) -> Checkpoint:
    return Checkpoint("memory", "", {stack.name: stack for stack in stacks})


def of(kind: str, parts: frozenset[str] = BOTH, layers: int = 1, directions: int = 1) -> Recurrent:
    return random_stack(Sizes(kind, 3, 4, layers, directions, parts=parts), 5, np.float32)


def edited(path: Path, tree: dict[str, Any], name: str = "made.json") -> Path:
    """A file of a document that was changed by hand."""
    target = path.parent / name
    target.write_text(json.dumps(tree))
    return target


def real(path: str) -> Path:
    need("corpus", corpus.absent())
    return corpus.FOLDER / path


# What the models give ---------------------------------------------------------------------------------------

FUNCTIONS: dict[str, Callable[[Array], Array]] = {"": lambda x: x, "tanh": np.tanh, "sigmoid": lambda x: 1 / (1 + np.exp(-x))}


def row_outputs(path: Path, x: Array) -> Array:
    """The outputs (time, 1, out) of a row of layers: its recurrent ones as they were read, the dense ones by hand."""
    layers = rc.load(path).layers
    y = x
    for layer in json.loads(path.read_text())["layers"]:
        if layer["type"] in layers:
            y = reference.run(layers[layer["type"]], y).y
        else:
            weight, bias = (np.array(values) for values in layer["weights"])
            y = FUNCTIONS[layer["activation"]](y @ weight + bias)
    return y


@pytest.mark.parametrize("name", ["gru", "gru_1d", "lstm", "lstm_1d"])
def test_a_model_of_rtneurals_tests_gives_its_outputs(name: str) -> None:
    path = real(f"rtneural-models/{name}.json")
    x, y = (np.loadtxt(path.with_name(f"{name}_{axis}_python.csv")).reshape(-1, 1, 1) for axis in "xy")
    outputs = row_outputs(path, x)
    assert np.abs(outputs - y).max() < 5e-7
    assert np.abs(outputs).max() > 0.01


@pytest.mark.parametrize("name", ["gru", "lstm"])
def test_a_torch_model_of_rtneurals_tests_gives_its_outputs(name: str) -> None:
    path = real(f"rtneural-models/{name}_torch.json")
    x, expected = (np.loadtxt(path.with_name(f"{name}_torch_{axis}_python.csv")).reshape(-1, 1, 1) for axis in "xy")
    checkpoint = rc.load(path)
    y = x
    for stack in checkpoint.layers.values():
        y = reference.run(stack, y).y
    y = y @ np.asarray(checkpoint.tensors["dense.weight"]).T + np.asarray(checkpoint.tensors["dense.bias"])
    assert np.abs(y - expected).max() < 1e-6


def test_an_amplifier_gives_its_outputs_from_its_learned_state() -> None:
    path = real("nam-lstm/lstm.nam")
    checkpoint = rc.load(path)
    with np.load(path.with_name("lstm.nam.ref.npz")) as recorded:
        x, expected = recorded["x"], recorded["out"]
    y = reference.run(checkpoint.layers["lstm"], x).y
    y = y @ np.asarray(checkpoint.tensors["head.weight"]).T + np.asarray(checkpoint.tensors["head.bias"])
    assert np.abs(y - expected).max() < 1e-6
    assert np.any(checkpoint.layers["lstm"].first.arrays["initial_hidden", ""])


def amplifier(path: Path, skip: int = 0, off: float = 0.0) -> dict[str, Any]:
    """Return the document of an AIDA-X model with the sample that its training leaves in it, as torch computes it.

    off  how far one of the recorded outputs is from what the model gives
    """
    torch = needed("torch", "torch")
    torch.manual_seed(1)
    rec, lin = torch.nn.LSTM(1, 4, batch_first=True), torch.nn.Linear(4, 1)
    x = torch.linspace(-1, 1, 60).reshape(1, 60, 1)
    with torch.no_grad():
        y = (lin(rec(x)[0]) + skip * x).ravel().tolist()
    y[40] += off
    state = {name: value.numpy() for name, value in rec.state_dict().items()}
    bias = state["bias_ih_l0"] + state["bias_hh_l0"]
    weights = [state["weight_ih_l0"].T.tolist(), state["weight_hh_l0"].T.tolist(), bias.tolist()]
    dense = [lin.weight.detach().numpy().T.tolist(), lin.bias.tolist()]
    document = {
        "in_shape": [None, None, 1], "in_skip": skip, "in_gain": 3.0,
        "layers": [{"type": "lstm", "activation": "", "shape": [None, None, 4], "weights": weights},
                   {"type": "dense", "activation": "", "shape": [None, None, 1], "weights": dense}],
        "input_batch": x.ravel().tolist(), "output_batch": y,
    }  # fmt: skip
    path.write_text(json.dumps(document))
    return document


@pytest.mark.parametrize("skip", [0, 1])
def test_the_sample_of_an_amplifier_is_part_of_the_proof(skip: int, tmp_path: Path) -> None:
    amplifier(path := tmp_path / "amp.json", skip)
    assert "of 60 steps, which verify runs, too" in call("inspect", path).output
    report = rc.convert(path, target := tmp_path / "amp.pt", verify=True).report
    assert report is not None and report.verdict == "recurrent layers equal" and report.exit_code == 0  # the dense layer stays behind
    assert "lstm: it gives the 60 outputs of its own model that A holds, to within" in str(report)
    assert "that A holds" in str(rc.verify(path, target))


@pytest.mark.parametrize("skip", [0, 1])
def test_a_sample_that_the_layers_do_not_give_is_not_equal(skip: int, tmp_path: Path) -> None:
    amplifier(path := tmp_path / "amp.json", skip, off=1e-4)
    with pytest.raises(rc.NotEqualError, match=r"that A holds are not what the layer of A gives there: off by 0\.0001"):
        rc.convert(path, tmp_path / "amp.pt", verify=True)
    assert not (tmp_path / "amp.pt").exists()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"output_batch": None}, "'output_batch' is not a list of numbers"),
        ({"output_batch": [0.5]}, r"it has the shapes \(60,\) and \(1,\)"),
        ({"in_skip": 2}, "adds 2 of its input"),
        ({"function": "elu"}, "'dense' is not a dense layer with a function that is computed here"),
    ],
)
def test_a_sample_that_cannot_be_used_stops_nothing(change: dict[str, Any], why: str, tmp_path: Path) -> None:
    document = amplifier(path := tmp_path / "amp.json")
    document["layers"][1]["activation"] = change.pop("function", "")
    path.write_text(json.dumps({**document, **change}))
    checkpoint = rc.load(path)
    assert not checkpoint.recorded and any(re.search(f"its sample .* is not used: .*{why}", warning) for warning in checkpoint.warnings)
    report = rc.convert(path, tmp_path / "amp.pt", verify=True).report
    assert report is not None and report.verdict == "recurrent layers equal"


@pytest.mark.parametrize("form", ["rtneural", "guitarml"])
def test_the_layers_around_fill_a_model_of_torch(form: str, tmp_path: Path) -> None:
    torch = needed("torch", "torch")
    document = amplifier(path := tmp_path / "amp.json")
    weight, bias = (np.array(values, np.float32) for values in document["layers"][1]["weights"])
    if form == "guitarml":
        rc.convert(path, path := tmp_path / "amp2.json", target_format="guitarml", prefix="rec")
        state = json.loads(path.read_text())
        path.write_text(json.dumps({**state, "lin.weight": weight.T.tolist(), "lin.bias": bias.tolist()}))

    class Amplifier(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rec, self.lin = torch.nn.LSTM(1, 4, batch_first=True), torch.nn.Linear(4, 1)

    rc.load_into(module := Amplifier(), path)
    with torch.no_grad():
        y = module.lin(module.rec(torch.tensor(document["input_batch"]).reshape(1, -1, 1))[0])
    np.testing.assert_allclose(y.ravel(), document["output_batch"], rtol=0, atol=1e-6)


# Keras and torch beside what is read and written ------------------------------------------------------------


def keras_runs(document: dict[str, Any], x: Array) -> Array:
    """What Keras's own layers give with the lists of a file as their weights, as RTNeural's exporter took them."""
    need("keras", "")
    import keras

    y: Any = np.ascontiguousarray(x.swapaxes(0, 1))
    for layer in document["layers"]:
        if layer["type"] in ("gru", "lstm"):
            kind = {"gru": keras.layers.GRU, "lstm": keras.layers.LSTM}[layer["type"]]
            recurrent = kind(layer["shape"][-1], return_sequences=True)
            recurrent.build(y.shape)
            recurrent.set_weights([np.array(weights, np.float32) for weights in layer["weights"]])
            y = keras.ops.convert_to_numpy(recurrent(y))
    return np.asarray(y).swapaxes(0, 1)


def torch_runs(document: dict[str, Any], stack: Recurrent, x: Array) -> Array:
    """What torch's own module gives with the lists of a file as its state dictionary."""
    need("torch", "")
    import torch

    module = getattr(torch.nn, stack.cell.kind.upper())(stack.input_size, stack.hidden_size, stack.num_layers)
    module.load_state_dict({name: torch.tensor(value) for name, value in document.items()})
    with torch.no_grad():
        return np.asarray(module(torch.from_numpy(x))[0].numpy())


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_keras_runs_what_is_written_for_rtneural(kind: str, layers: int, tmp_path: Path) -> None:
    stack = of(kind, BOTH if kind == "gru" else PLAIN | {"input_bias"}, layers)
    summary = rc.save(memory(stack), tmp_path / "a.json", "rtneural")
    assert summary.exact
    document = json.loads((tmp_path / "a.json").read_text())
    assert document["in_shape"] == [None, None, 3] and len(document["layers"]) == layers
    y = keras_runs(document, X)
    assert off(stack, X, y) <= 1
    for layer in document["layers"]:  # a test that could not fail would be none
        kernel = np.array(layer["weights"][1])
        layer["weights"][1] = np.roll(kernel, 4, 1).tolist()
    assert off(stack, X, keras_runs(document, X)) > WRONG


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("kind", ["gru", "lstm", "rnn"])
def test_torch_runs_what_is_written_for_guitarml(kind: str, layers: int, tmp_path: Path) -> None:
    stack = of(kind, layers=layers)
    assert rc.save(memory(stack), tmp_path / "a.json", "guitarml").exact
    document = json.loads((tmp_path / "a.json").read_text())
    assert off(stack, X, torch_runs(document, stack, X)) <= 1
    assert off(stack, X[::-1], torch_runs(document, stack, X)) > WRONG


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_keras_and_torch_give_what_a_real_file_is_read_as(kind: str) -> None:
    path = real(f"rtneural-models/{kind}_1d.json")
    document = json.loads(path.read_text())
    x = X[..., :1]
    assert off(only(path), x, keras_runs(document, x)) <= 1
    path = real(f"rtneural-models/{kind}_torch.json")
    weights = {name.partition(".")[2]: value for name, value in json.loads(path.read_text()).items() if name.startswith(f"{kind}2.")}
    stack = rc.load(path).layers[f"{kind}2"]
    x = np.random.default_rng(2).uniform(-1, 1, (5, 2, 8)).astype(np.float32)
    assert off(stack, x, torch_runs(weights, stack, x)) <= 1


def torch_runs_nam(document: dict[str, Any], x: Array) -> Array:
    """torch.nn.LSTM with the list of a file taken apart by hand, as NAM/lstm.cpp takes it, from its learned state."""
    need("torch", "")
    import torch

    inputs, units, layers = (document["config"][key] for key in ("input_size", "hidden_size", "num_layers"))
    values = iter(document["weights"])
    module = torch.nn.LSTM(inputs, units, layers)
    states: list[list[list[float]]] = [[], []]
    state = {}
    for layer in range(layers):
        width = units if layer else inputs
        rows = [[next(values) for _ in range(width + units)] for _ in range(4 * units)]
        state[f"weight_ih_l{layer}"] = torch.tensor([row[:width] for row in rows])
        state[f"weight_hh_l{layer}"] = torch.tensor([row[width:] for row in rows])
        state[f"bias_ih_l{layer}"] = torch.tensor([next(values) for _ in range(4 * units)])
        state[f"bias_hh_l{layer}"] = torch.zeros(4 * units)
        for numbers in states:
            numbers.append([next(values) for _ in range(units)])
    assert len(list(values)) == units + 1
    module.load_state_dict(state)
    first = [torch.tensor(numbers)[:, None].repeat(1, x.shape[1], 1) for numbers in states]
    with torch.no_grad():
        return np.asarray(module(torch.from_numpy(x), tuple(first))[0].numpy())


@pytest.mark.parametrize("layers", [1, 3])
def test_torch_runs_what_is_written_for_an_amplifier(layers: int, tmp_path: Path) -> None:
    parts = PLAIN | {"input_bias", "initial_hidden", "initial_cell"}
    learned = of("lstm", parts, layers)
    summary = rc.save(memory(learned), tmp_path / "a.nam")
    assert summary.exact and any("head is zeros" in note for note in summary.notes)
    document = json.loads((tmp_path / "a.nam").read_text())
    assert off(learned, X, torch_runs_nam(document, X)) <= 1
    assert off(only(tmp_path / "a.nam"), X, torch_runs_nam(document, X)) <= 1
    plain = of("lstm", PLAIN | {"input_bias"}, layers)
    rc.save(memory(plain), tmp_path / "b.nam")
    assert off(plain, X, torch_runs_nam(json.loads((tmp_path / "b.nam").read_text()), X)) <= 1
    assert off(learned, X, torch_runs_nam(json.loads((tmp_path / "b.nam").read_text()), X)) > WRONG


def test_a_model_that_the_trainer_wrote_gives_what_it_gives(tmp_path: Path) -> None:
    """tests/golden/nam/make.py: neural-amp-modeler 0.13.0, whose files are of version 0.7.0."""
    folder = ROOT / "tests" / "golden" / "nam"
    answers = np.load(folder / "answers.npz")
    checkpoint = rc.load(folder / "model.nam")
    assert not checkpoint.warnings
    (stack,) = checkpoint.layers.values()
    y = reference.run(stack, answers["x"][:, None, None].astype(float)).y[:, 0]
    head = checkpoint.tensors["head.weight"][0], checkpoint.tensors["head.bias"][0]
    np.testing.assert_allclose(y @ head[0] + head[1], answers["y"], rtol=0, atol=2e-6)
    need("gcc", absent({}))
    rc.export_model(folder / "model.nam", tmp_path / "amp.onnx")
    for source in (folder / "model.nam", tmp_path / "amp.onnx"):  # its two initial states have one name, or none
        rc.export_model(source, tmp_path / "amp.h", force=True)
        (in_c,) = whole_run.open_file(tmp_path / "amp.h").ran([("", answers["x"][None, :, None].astype(np.float32))], ())[0].outputs
        np.testing.assert_allclose(in_c.ravel(), answers["y"], rtol=0, atol=2e-6)


# Written again ----------------------------------------------------------------------------------------------

REAL = [
    *(f"rtneural-models/{name}.json" for name in ("gru", "gru_1d", "lstm", "lstm_1d", "full_model", "gru_torch", "lstm_torch")),
    *(f"klon-centaur/centaur{name}.json" for name in ("", "_0", "_50", "_100", "_large", "_small")),
    "nam-lstm/lstm.nam",
]  # fmt: skip


def singles(tree: Any) -> Any:
    """A document with every number that is not an integer in single precision."""
    if isinstance(tree, dict):
        return {key: singles(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [singles(value) for value in tree]
    return struct.pack("<f", tree) if isinstance(tree, float) else tree


@pytest.mark.parametrize("name", REAL)
def test_a_real_file_that_is_written_again_says_the_same(name: str, tmp_path: Path) -> None:
    path = real(name)
    target = tmp_path / f"made{path.suffix}"
    rc.convert(path, target, target_format=rc.load(path).format)
    before, after = (json.loads(file.read_text()) for file in (path, target))
    if "torch" not in name:
        assert list(before) == list(after)
    assert singles(before) == singles(after)
    assert before.get("metadata") == after.get("metadata")


@pytest.mark.parametrize("name", REAL)
def test_a_real_model_goes_to_onnx_and_c_and_back(name: str, tmp_path: Path) -> None:
    """Each of its forms gives what the one before gives, and the last one has the numbers of the first."""
    need("gcc", absent({}))
    needed("onnxruntime", "onnxruntime")
    path = real(name)
    words: dict[str, Any] = {"verify": True}
    if "torch" in name:  # weights alone, which nothing runs
        kind = path.stem.partition("_")[0]
        words = {"chain": f"{kind} {kind}2 dense"}
    assert rc.export_model(path, tmp_path / "model.onnx", **words).layers
    source = tmp_path / "model.onnx" if "torch" in name else path
    header, back = tmp_path / "model.h", tmp_path / f"back{path.suffix}"
    assert rc.export_model(source, header, verify=True).equal
    assert rc.export_model(tmp_path / "model.onnx", back, format=rc.load(path).format, verify=True).equal
    ours, theirs = (rc.load(file) for file in (path, back))
    numbers = [
        sorted(value for array in read.tensors.values() for value in np.asarray(array, np.float32).ravel()) for read in (ours, theirs)
    ]
    assert numbers[0] == numbers[1]
    for stack, again in zip(ours.layers.values(), theirs.layers.values(), strict=False):
        for key, array in stack.first.arrays.items():
            np.testing.assert_array_equal(np.asarray(array), np.asarray(again.first.arrays[key]))


def test_a_number_is_written_as_the_shortest_text_that_comes_back() -> None:
    values = np.random.default_rng(0).integers(0, 1 << 32, 200_000, np.uint32).view(np.float32)
    values = np.concatenate([values[np.isfinite(values)], np.array([0, -0.0, 1, 0.1, 1e-45, 3.4028235e38], np.float32)])
    texts = json_file.shortest(values)
    again = np.array([json.loads(text) for text in texts], np.float64).astype(np.float32)
    assert np.array_equal(again.view(np.uint32), values.view(np.uint32))
    assert max(map(len, texts)) <= 17
    assert texts[-5:-1] == ["-0.0", "1.0", "0.1", "1e-45"]


def test_a_layer_goes_between_all_three(tmp_path: Path) -> None:
    stack = of("lstm", PLAIN | {"input_bias"})
    rc.save(memory(stack), tmp_path / "a.json")
    rc.convert(tmp_path / "a.json", tmp_path / "b.json", target_format="guitarml", prefix="rec")
    rc.convert(tmp_path / "b.json", tmp_path / "c.nam")
    rc.convert(tmp_path / "c.nam", tmp_path / "d.aidax")
    assert [rc.load(tmp_path / name).format for name in ("a.json", "b.json", "c.nam", "d.aidax")] == [
        "rtneural", "guitarml", "nam", "rtneural",
    ]  # fmt: skip
    first, last = (json.loads((tmp_path / name).read_text())["layers"] for name in ("a.json", "d.aidax"))
    assert first == last


# AIDA-X -----------------------------------------------------------------------------------------------------


def aida_x(tmp_path: Path, **more: Any) -> Path:
    stack = of("lstm", PLAIN | {"input_bias"})
    rc.save(memory(stack), tmp_path / "plain.json")
    tree = json.loads((tmp_path / "plain.json").read_text())
    dense = {"type": "dense", "activation": "", "shape": [None, None, 1], "weights": [[[0.5]] * 4, [0.25]]}
    tree["layers"].append(dense)
    return edited(tmp_path / "plain.json", {"in_skip": 1, "metadata": {"name": "Crunch", "samplerate": 48000}, **more, **tree})


def test_what_aida_x_does_around_its_layers_is_named_and_kept(tmp_path: Path) -> None:
    path = aida_x(tmp_path, in_gain=-3.5, out_gain=0)
    checkpoint = rc.load(path)
    assert "AIDA-X" in checkpoint.path or any("lstm" in line for line in checkpoint.evidence)
    assert [warning.split(" ")[0] for warning in checkpoint.warnings] == ["in_skip", "in_gain"]
    output = call("inspect", path).stdout
    assert "name Crunch" in output and "in_skip is 1" in output and "dense/weights/0 (4 x 1)" in output
    rc.convert(path, tmp_path / "again.aidax")
    before, after = (json.loads(file.read_text()) for file in (path, tmp_path / "again.aidax"))
    assert singles(before) == singles(after)
    rc.convert(path, tmp_path / "alone.aidax", layers="lstm")
    alone = json.loads((tmp_path / "alone.aidax").read_text())
    assert "in_skip" not in alone and [layer["type"] for layer in alone["layers"]] == ["lstm"]


def test_a_plain_model_warns_of_nothing() -> None:
    for name in REAL:
        assert rc.load(real(name)).warnings == () and rc.load(real(name)).questions == ()


# What a file must not say -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"shape": [None, None, 5]}, "has 3 and 5"),
        ({"shape": None}, "ends in a width"),
        ({"shape": [None, None, True]}, "ends in a width"),
        ({"weights": {"a": 1}}, "weights that are not a list"),
        ({"weights": ["abc"]}, "not a list of numbers"),
        ({"weights": [[[1.0, True]]]}, "has True in it"),
        ({"weights": [[[1.0, None]]]}, "not a list of numbers"),
        ({"weights": [[[1.0], [1.0, 2.0]]]}, "lengths"),
        ({"weights": [[[1e39]]]}, "too large for float32"),
        ({"weights": [[[10**400]]]}, "too large for float32"),
        ({"weights": [[[[[[[[[[1.0]]]]]]]]]]}, "too deep"),
        ({"type": 3}, "no type"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_layer_that_contradicts_itself_is_unreadable(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    rc.save(memory(of("gru")), tmp_path / "a.json")
    tree = json.loads((tmp_path / "a.json").read_text())
    tree["layers"][0].update(change)
    with pytest.raises(rc.UnreadableError, match=message):
        rc.load(edited(tmp_path / "a.json", tree), "rtneural")


def refused(path: Path, *words: str, target: str = "out.onnx", code: int = 4) -> None:
    result = call("convert", path, path.parent / target)
    assert result.exit_code == code, result.output
    assert all(word in result.stderr for word in words), result.stderr
    assert not (path.parent / target).exists()


def test_a_layer_that_rtneural_computes_otherwise_is_refused(tmp_path: Path) -> None:
    rc.save(memory(of("gru")), tmp_path / "a.json")
    tree = json.loads((tmp_path / "a.json").read_text())
    for change, words in (
        ({"activation": "relu"}, ("activation", "relu")),
        ({"recurrent_activation": "hard_sigmoid"}, ("recurrent_activation",)),
        ({"hidden_size": 5}, ("hidden_size",)),
        ({"weights": [*tree["layers"][0]["weights"][:2], [0.5] * 12]}, ("weights/2",)),
        ({"type": "simplernn"}, ("simplernn", "recurrent layer")),
        ({"type": "resampler"}, ("resampler", "does not know")),
    ):
        changed = copy.deepcopy(tree)
        changed["layers"][0].update(change)
        refused(edited(tmp_path / "a.json", changed), *words)


def test_sizes_that_a_layer_states_again_change_nothing(tmp_path: Path) -> None:
    rc.save(memory(stack := of("gru")), tmp_path / "a.json")
    tree = json.loads((tmp_path / "a.json").read_text())
    first, sizes = tree["layers"][0], stack.first
    first.update(input_size=sizes.input_size, hidden_size=sizes.hidden_size, output_size=sizes.hidden_size, units=sizes.hidden_size)
    rc.convert(edited(tmp_path / "a.json", tree), tmp_path / "a.onnx")


def test_guitarmls_model_data_is_compared_with_its_arrays(tmp_path: Path) -> None:
    stack = of("lstm").replace(name="rec")
    rc.save(memory(stack), tmp_path / "a.json", "guitarml", prefix="rec")
    state = json.loads((tmp_path / "a.json").read_text())
    state |= {"lin.weight": [[0.5] * 4], "lin.bias": [0.25]}
    about = {"model": "SimpleRNN", "input_size": 3, "skip": 1, "output_size": 1, "unit_type": "LSTM", "num_layers": 1, "hidden_size": 4,
             "bias_fl": True}  # fmt: skip
    path = edited(tmp_path / "a.json", {"model_data": about, "state_dict": state})
    checkpoint = rc.load(path)
    assert list(checkpoint.layers) == ["rec"] and list(checkpoint.tensors) == ["lin.weight", "lin.bias"]
    assert off(checkpoint.layers["rec"], X, reference.run(stack, X).y) <= 1
    assert len(checkpoint.warnings) == 1 and "skip is 1" in checkpoint.warnings[0]
    rc.convert(path, tmp_path / "again.json", target_format="guitarml")
    assert singles(json.loads(path.read_text())) == singles(json.loads((tmp_path / "again.json").read_text()))
    for key, value in {"hidden_size": 40, "num_layers": 2, "input_size": 1, "unit_type": "GRU", "output_size": 2, "bias_fl": False,
                       "num_layers ": 1}.items():  # fmt: skip
        changed = edited(path, {"model_data": {**about, key: value}, "state_dict": state}, "changed.json")
        if key in about:
            with pytest.raises(rc.UnreadableError, match=key):
                rc.load(changed)
        else:
            refused(changed, key)
    refused(edited(path, {"model_data": {**about, "model": "RecNet"}, "state_dict": state}, "other.json"), "RecNet")


def test_tensors_with_their_shapes_run(tmp_path: Path) -> None:
    rc.save(memory(of("lstm").replace(name="rnn")), tmp_path / "a.json", "guitarml", prefix="rnn")
    state = json.loads((tmp_path / "a.json").read_text())
    tree: dict[str, Any] = {"rnn": {}}
    for name, values in state.items():
        array = np.array(values)
        tree["rnn"][name.removeprefix("rnn.")] = {"shape": list(array.shape), "values": array.reshape(-1).tolist()}
    path = edited(tmp_path / "a.json", {"config": {"model_type": "ResLSTM"}, "state_dict": tree}, "nanoflare.json")
    rc.convert(path, tmp_path / "a.onnx")
    report = rc.verify(path, tmp_path / "a.onnx", on=["guitarml-numpy"])
    assert report.verdict == "equal", str(report)


def _shaped(value: Any) -> Any:
    """Return lists of numbers as Nanoflare's `state_dict` has them: a shape, and the values in order."""
    return {"shape": [*np.shape(value)], "values": np.ravel(value).tolist()}


def test_modules_in_modules_and_shapes_next_to_values_are_arrays(tmp_path: Path) -> None:
    stack = of("lstm").replace(name="rnn")
    rc.save(memory(stack), tmp_path / "a.json", "guitarml")
    state = {name.rpartition(".")[2]: value for name, value in json.loads((tmp_path / "a.json").read_text()).items()}
    dense: dict[str, Any] = {"weight": [[0.5] * 4], "bias": [0.25]}
    for form in (_shaped, list[Any]):
        modules = {
            "rnn": {name: form(value) for name, value in state.items()},
            "head": {"0": {k: form(v) for k, v in dense.items()}, "n": 3},
        }
        path = edited(tmp_path / "a.json", {"config": {"model_type": "ResLSTM"}, "state_dict": modules}, "b.json")
        checkpoint = rc.load(path)
        assert [*checkpoint.layers] == ["rnn"] and {*checkpoint.tensors} == {"head.0.weight", "head.0.bias"}
        assert off(checkpoint.layers["rnn"], X, reference.run(stack, X).y) <= 1
        assert checkpoint.warnings == (
            "the file states 'head.n', which is not an array",
            "the file states 'config', whose effect is unknown",
        )
        rc.convert(path, tmp_path / "again.json", target_format="guitarml", force=True)
        again = rc.load(tmp_path / "again.json").layers["rnn"]
        assert off(again, X, reference.run(stack, X).y) <= 1
    bias = {"shape": [16], "values": [0.0] * 16}
    for wrong in ({**bias, "shape": [4, 5]}, {**bias, "shape": [-16]}, {**bias, "values": [[0.0] * 16]}, {**bias, "shape": [16.0]}):
        rnn = {name: _shaped(value) for name, value in state.items()} | {"bias_ih_l0": wrong}
        with pytest.raises(rc.UnreadableError, match=r"'rnn\.bias_ih_l0' states the shape"):
            rc.load(edited(path, {"state_dict": {"rnn": rnn}}, "wrong.json"), source_format="guitarml")
    twice = {"rnn": state, "rnn.bias_ih_l0": state["bias_ih_l0"]}
    with pytest.raises(rc.UnreadableError, match=r"two things in it have the name 'rnn\.bias_ih_l0'"):
        rc.load(edited(path, {"state_dict": twice}, "wrong.json"), source_format="guitarml")
    nested: dict[str, Any] = state
    for _ in range(40):
        nested = {"a": nested}
    with pytest.raises(rc.UnreadableError, match="nested more than 32 deep"):
        rc.load(edited(path, {"state_dict": nested}, "wrong.json"), source_format="guitarml")


def test_an_amplifier_that_contradicts_itself_is_unreadable(tmp_path: Path) -> None:
    rc.save(memory(of("lstm", PLAIN | {"input_bias"})), tmp_path / "a.nam")
    tree = json.loads((tmp_path / "a.nam").read_text())
    for change, message in (
        ({"weights": tree["weights"][:-1]}, "but an LSTM of 1 layers with 4 units"),
        ({"weights": [tree["weights"]]}, "not one list"),
        ({"weights": None}, "not a list of numbers"),
        ({"config": {**tree["config"], "hidden_size": 10**9}}, "hidden_size"),
        ({"config": {**tree["config"], "num_layers": -1}}, "num_layers"),
        ({"config": {**tree["config"], "input_size": 3.0}}, "input_size"),
        ({"config": {"input_size": 3}}, "hidden_size"),
        ({"config": {**tree["config"], "out_channels": 2}}, "a head of 2 has 146"),
        ({"config": {**tree["config"], "out_channels": 0}}, "out_channels"),
        ({"config": {**tree["config"], "in_channels": 2}}, "2 in_channels"),
    ):
        with pytest.raises(rc.UnreadableError, match=message):
            rc.load(edited(tmp_path / "a.nam", {**tree, **change}, "b.nam"))
    wavenet = rc.load(edited(tmp_path / "a.nam", {**tree, "architecture": "WaveNet"}, "d.nam"))
    assert not wavenet.layers and not wavenet.unread
    refused(edited(tmp_path / "a.nam", {**tree, "architecture": "CatLSTM"}, "e.nam"), "CatLSTM")


# What they cannot hold --------------------------------------------------------------------------------------


def test_what_these_formats_cannot_hold_is_refused(tmp_path: Path) -> None:
    both = frozenset(BOTH)
    for stack, targets, word in (
        (of("lstm", directions=2), ("a.json", "a.nam", "guitarml"), "direction"),
        (of("lstm", both | {"peephole"}), ("a.json", "a.nam", "guitarml"), "peephole"),
        (of("rnn"), ("a.json", "a.nam"), ""),
        (of("gru"), ("a.nam",), ""),
        (random_stack(Sizes("lstm", 3, 4, projection_size=2, parts=both | {"projection"}), 1, np.float32), ("guitarml",), ""),
        (of("lstm", both | {"initial_hidden", "initial_cell"}), ("a.json", "guitarml"), "initial"),
    ):
        for target in targets:
            path, format = (tmp_path / "g.json", target) if "." not in target else (tmp_path / target, None)
            try:
                summary = rc.save(memory(stack), path, format)
            except rc.RefusedError as error:
                assert word in str(error), error
                assert not path.exists()
                continue
            assert stack.first.projection_size and not summary.exact, (stack, target)
            path.unlink()
    with pytest.raises(rc.RefusedError, match="float64"):
        rc.save(memory(random_stack(Sizes("gru", 3, 4), 1, np.float64)), tmp_path / "a.json")
    rc.save(memory(random_stack(Sizes("gru", 3, 4), 1, np.float64)), tmp_path / "a.json", dtype="float32")


def test_layers_that_may_not_read_one_another_are_refused_in_a_row(tmp_path: Path) -> None:
    two = memory(of("gru").replace(name="left"), of("gru").replace(name="right"))
    for target in ("a.json", "a.nam"):
        with pytest.raises(rc.RnnConvertError, match="left"):
            rc.save(
                two if target == "a.json" else memory(*(of("lstm").replace(name=name) for name in ("left", "right"))), tmp_path / target
            )
        assert not (tmp_path / target).exists()


@pytest.mark.parametrize("target", ["a.json", "a.nam"])
def test_numbers_that_json_does_not_have_are_not_written(target: str, tmp_path: Path) -> None:
    stack = of("lstm", PLAIN | {"input_bias"})
    bias = np.array(stack.first.arrays["input_bias", "f"])
    bias[0] = np.nan
    layer = type(stack.layers[0])((stack.first.with_arrays({("input_bias", "f"): bias}),))
    with pytest.raises(rc.UsageError, match="finite"):
        rc.save(memory(stack.replace(layers=(layer,))), tmp_path / target)
    assert list(tmp_path.iterdir()) == []


# Hostile files ----------------------------------------------------------------------------------------------

HOSTILE = {
    "deep": b'{"layers": ' + b"[" * 200_000 + b"]" * 200_000 + b"}",
    "deep and open": b'{"a":' * 100_000,
    "many lists": b'{"layers": [' + b"[]," * 2_000_000 + b"[]]}",
    "many keys": b"{" + b",".join(b'"%d": 1' % number for number in range(100_000)) + b"}",
    "NaN": b'{"in_shape": [null, null, 1], "layers": [{"type": "gru", "weights": [NaN]}]}',
    "Infinity": b'{"architecture": "LSTM", "config": {}, "weights": [-Infinity]}',
    "digits": b'{"in_shape": [1], "layers": [{"type": "gru", "weights": [' + b"9" * 100_000 + b"]}]}",
    "twice": b'{"in_shape": [1], "layers": [], "layers": [{"type": "gru"}]}',
    "cut": b'{"in_shape": [1], "layers": [{"type": "gru", "weights": [[0.5',
    "not text": b'{"in_shape\xff": 1}',
    "more behind": b'{"in_shape": [1], "layers": []} {}',
    "not JSON": b"{in_shape: 1}",
    "other JSON": b'{"class_name": "Sequential"}',
    "list of layers": b'{"in_shape": [1], "layers": [' + b",".join(b'{"type": "gru"}' for _ in range(5_000)) + b"]}",
    "no names": b'{"state_dict": [1], "model_data": {}}',
    "numbers alone": b'{"state_dict": {"rec.weight_ih_l0": 1, "rec.weight_hh_l0": 2}, "model_data": {"skip": 0}}',
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_file_is_unreadable(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_bytes(HOSTILE[kind])
    for format in (None, "rtneural", "guitarml", "nam"):
        try:
            checkpoint = rc.load(path, format)
        except rc.UnreadableError:
            continue
        assert not checkpoint.layers, (kind, format)
    result = call("convert", path, tmp_path / "out.onnx")
    assert result.exit_code == (3 if kind != "numbers alone" else result.exit_code) and result.exit_code in (2, 3), result.output
    assert "Traceback" not in result.stderr and not (tmp_path / "out.onnx").exists()


def test_a_file_that_is_cut_anywhere_is_unreadable(tmp_path: Path) -> None:
    rc.save(memory(of("lstm", PLAIN | {"input_bias"})), tmp_path / "a.nam")
    rc.save(memory(of("gru")), tmp_path / "a.json")
    rc.save(memory(of("gru")), tmp_path / "b.json", "guitarml")
    for name in ("a.nam", "a.json", "b.json"):
        text = (tmp_path / name).read_bytes().rstrip()
        for length in range(1, len(text), max(1, len(text) // 40)):
            (tmp_path / f"cut{name}").write_bytes(text[:length])
            with pytest.raises(rc.UnreadableError):
                rc.load(tmp_path / f"cut{name}")


def test_reading_json_is_bounded_in_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rc.save(memory(of("gru")), tmp_path / "a.json")
    monkeypatch.setattr(json_file, "JSON_BYTES", 100)
    with pytest.raises(rc.UnreadableError, match="at most 100"):
        json_file.read(tmp_path / "a.json")
    with pytest.raises(rc.UsageError, match="more than 100 bytes"):
        rc.save(memory(of("gru")), tmp_path / "b.json", "rtneural")
    assert not (tmp_path / "b.json").exists()


def test_load_into_fills_the_layers_around_too(tmp_path: Path) -> None:
    torch = needed("torch", "torch")

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rec, self.lin = torch.nn.LSTM(1, 4), torch.nn.Linear(4, 1)

    source, filled = Model(), Model()
    state = {name: value.tolist() for name, value in source.state_dict().items()}
    about = {"model": "SimpleRNN", "input_size": 1, "hidden_size": 4, "num_layers": 1, "unit_type": "LSTM", "output_size": 1}
    path = edited(tmp_path / "amp.json", {"model_data": about, "state_dict": state}, "amp.json")
    rc.load_into(filled, path)
    for name, value in source.state_dict().items():
        assert torch.equal(filled.state_dict()[name], value), name


def test_load_into_fills_a_whole_row_of_rtneural(tmp_path: Path) -> None:
    torch = needed("torch", "torch")
    keras = needed("keras", "keras")
    row = [keras.layers.Dense(4), keras.layers.Conv1D(3, 2), keras.layers.GRU(5, return_sequences=True), keras.layers.Dense(2)]
    model = keras.Sequential([keras.Input((6, 1)), *row])
    shapes = [{"type": type(layer).__name__.lower(), "activation": "", "shape": [None, None, layer.output.shape[-1]],
               "weights": [array.tolist() for array in layer.get_weights()]} for layer in row]  # fmt: skip
    document = {"in_shape": [None, None, 1], "layers": [{**spec, "kernel_size": [2], "dilation": [1]} if spec["type"] == "conv1d" else spec
                                                        for spec in shapes]}  # fmt: skip
    path = edited(tmp_path / "row.json", document, "row.json")

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.conv = torch.nn.Linear(1, 4), torch.nn.Conv1d(4, 3, 2)
            self.gru, self.last = torch.nn.GRU(3, 5, batch_first=True), torch.nn.Linear(5, 2)

        def forward(self, x: Any) -> Any:
            return self.last(self.gru(self.conv(self.first(x).mT).mT)[0])

    filled = Model()
    rc.load_into(filled, path)
    x = np.random.default_rng(1).uniform(-1, 1, (2, 6, 1)).astype(np.float32)
    with torch.no_grad():
        np.testing.assert_allclose(filled(torch.from_numpy(x)).numpy(), np.asarray(model(x)), rtol=0, atol=1e-6)
