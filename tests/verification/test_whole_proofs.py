"""Whole models are run where people have them: files of Keras 2, SavedModels, programs of torch; and what is not equal is not kept."""

from __future__ import annotations

import importlib.util
import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core.errors import NotEqualError
from rnnconvert.judging.comparison import OutputComparison
from rnnconvert.judging.judging import Allowance, Output, compare
from rnnconvert.judging.whole import WholeJudge, left_open
from rnnconvert.models import runners as model_runners
from rnnconvert.models.runners import FileModel, moved, runners
from rnnconvert.running.models import _outputs
from rnnconvert.running.registry import built_in
from rnnconvert.running.witness import Witness
from tests import ROOT
from tests.helpers.commands import call
from tests.helpers.drawn import drawn, each
from tests.helpers.requirements import need

pytestmark = pytest.mark.filterwarnings("ignore:::")

X = np.random.default_rng(0).normal(size=(4, 7, 3)).astype(np.float32)


def frameworks() -> Any:
    """Torch and Keras, which both have to be there."""
    for name, executor in (("torch", "torch-cpu"), ("keras", "keras-tensorflow")):
        need(name, built_in()[executor].absent)
    import keras
    import torch

    return torch, keras


def model_of(keras: Any, seed: int) -> Any:
    keras.utils.set_random_seed(seed)
    layers = keras.layers
    return keras.Sequential(
        [layers.Input((7, 3)), layers.GRU(5, return_sequences=True, name="g"), layers.LSTM(4, name="l"), layers.Dense(2, name="d")]
    )  # fmt: skip


def test_what_is_not_installed_is_named_with_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keras = ["keras-tensorflow", "keras-torch", "keras-jax"]
    cases = [
        (keras, {"keras"}, "keras"), (keras, {"tensorflow", "torch", "jax"}, "tensorflow"), (keras[1:], {"torch", "jax"}, "torch"),
        (["onnxruntime-cpu"], {"onnxruntime"}, "onnxruntime"), (["torch-cpu"], {"torch"}, "torch"),
    ]  # fmt: skip
    find = importlib.util.find_spec

    def check(case: tuple[list[str], set[str], str]) -> None:
        names, absent, package = case
        monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name in absent else find(name, *more))
        monkeypatch.setattr(model_runners, "executors", lambda: {name: replace(built_in()[name]) for name in names})
        with pytest.raises(rc.MissingPackageError, match=f"needed to run .*model.* pip install {package}$") as error:
            FileModel(tmp_path / "model", names)
        assert error.value.exit_code == 5

    each(cases, check, str)


def test_a_file_of_keras_2_is_run_as_it_was_meant() -> None:
    torch, _ = frameworks()

    class Tagger(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = torch.nn.Embedding(12, 4)
            self.encoder = torch.nn.LSTM(4, 3, batch_first=True, bidirectional=True)
            self.norm = torch.nn.LayerNorm(6, eps=1e-3)
            self.tags = torch.nn.Linear(6, 5)

        def forward(self, words: Any) -> Any:
            return self.tags(self.norm(self.encoder(self.embedding(words))[0])).softmax(-1)

    report = rc.load_into(mine := Tagger(), ROOT / "examples" / "old_tagger.h5")
    words = np.array([[3, 1, 4, 1, 5, 9, 2], [6, 5, 3, 5, 8, 9, 7]])
    proof = report.verify(words)
    assert proof.equal and [comparison.output.partition(" ")[0] for comparison in proof.comparisons] == ["encoder", "output"]
    assert any("rnnconvert upgrade" in note for note in proof.notes)
    with torch.no_grad():
        mine.tags.bias[0] += 0.1
    assert not report.verify(words).equal


def test_programs_of_torch_and_saved_models_run(tmp_path: Path) -> None:
    torch, keras = frameworks()

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = torch.nn.GRU(3, 5, batch_first=True)
            self.head = torch.nn.Linear(5, 2)

        def forward(self, x: Any) -> Any:
            return self.head(self.rnn(x)[0][:, -1])

    net = Net().eval()
    torch.jit.trace(net, torch.randn(2, 7, 3)).save(tmp_path / "traced.pt")
    torch.export.save(torch.export.export(net, (torch.randn(4, 7, 3),)), tmp_path / "exported.pt2")
    for name in ("traced.pt", "exported.pt2"):
        report = rc.load_into(other := Net(), tmp_path / name)
        proof = report.verify(X)
        assert proof.equal and not proof.unseen, name
        assert [comparison.output.partition(" ")[0] for comparison in proof.comparisons] == ["rnn", "output"], name
        with torch.no_grad():
            other.head.weight += 0.01
        assert not report.verify(X).equal, name
    torch.save(net.state_dict(), tmp_path / "weights.pt")
    with pytest.raises(rc.UsageError, match="weights without code"):
        rc.load_into(Net(), tmp_path / "weights.pt").verify(X)
    model_of(keras, 1).export(tmp_path / "saved", verbose=False)
    report = rc.load_into(model := model_of(keras, 2), tmp_path / "saved")
    assert report.verify(X).equal
    model.layers[-1].bias.assign([1.0, 2.0])
    assert not report.verify(X).equal


def test_transplant_verify_keeps_what_is_equal_alone(tmp_path: Path) -> None:
    _, keras = frameworks()
    for seed, name in ((1, "a"), (2, "b")):
        model_of(keras, seed).save(tmp_path / f"{name}.keras")
    other = keras.Sequential([*model_of(keras, 3).layers[:-1], keras.layers.Dense(2, activation="tanh", name="d")])
    other.build((None, 7, 3))
    other.save(tmp_path / "tanh.keras")
    np.save(tmp_path / "x.npy", X)
    np.savez(tmp_path / "x.npz", first=X)
    for inputs in ("x.npy", "x.npz"):
        words = ("transplant", tmp_path / "a.keras", "--into", tmp_path / "b.keras", "-o", tmp_path / "c.keras", "--verify")
        result = call(*words, tmp_path / inputs, "--force", "--json")
        assert result.exit_code == 0 and json.loads(result.stdout)["proof"]["verdict"] == "equal", result.output
    result = call(
        "transplant", tmp_path / "a.keras", "--into", tmp_path / "tanh.keras", "-o", tmp_path / "d.keras", "--accept", "activation",
        "--verify", tmp_path / "x.npy",
    )  # fmt: skip
    assert result.exit_code == 1 and "d.keras was not written" in result.output, result.output
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [
        "a.keras", "b.keras", "c.keras", "tanh.keras", "x.npy", "x.npz",
    ]  # fmt: skip
    (tmp_path / "text.npy").write_text("no array")
    for file, code, message in (("missing.npy", 3, "No such file"), ("text.npy", 3, "not a .npy or .npz file")):
        result = call(*words, tmp_path / file, "--force")
        assert result.exit_code == code and message in result.output, result.output
    assert call(*words, tmp_path / "x.npy", "--force", "--dry-run").exit_code == 2
    result = call("transplant", "-", *words[2:], tmp_path / "x.npy", "--force")
    assert result.exit_code == 2 and "stdin and stdout" in result.output


def test_whole_verify_runs_both_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, keras = frameworks()
    need("onnxruntime", built_in()["onnxruntime-cpu"].absent)
    model_of(keras, 1).save(tmp_path / "a.keras")
    result = call("export", tmp_path / "a.keras", tmp_path / "a.onnx", "--verify")
    assert result.exit_code == 0 and "output: equal" in result.output, result.output
    result = call("export", tmp_path / "a.keras", tmp_path / "a.onnx", "--verify", "--force", "--json")
    assert json.loads(result.stdout)["proof"].startswith("equal")
    assert call("export", tmp_path / "a.keras", tmp_path / "b.onnx", "--verify", "--dry-run").exit_code == 2
    from rnnconvert.formats.onnx import export_graph as whole_onnx
    from rnnconvert.formats.onnx.proto import write as onnx_write

    def wrong(path: Any, model: Any, arrays: Any) -> str:
        changed = {name: np.asarray(np.asarray(data) * (0.99 if data.dtype == np.float32 else 1)) for name, data in arrays.items()}
        return onnx_write.write(path, model, changed)

    monkeypatch.setattr(whole_onnx, "write", wrong)
    with pytest.raises(NotEqualError, match="not equal"):
        rc.export_model(tmp_path / "a.keras", tmp_path / "b.onnx", verify=True)
    assert not (tmp_path / "b.onnx").exists()


def test_a_streaming_file_is_run_itself(tmp_path: Path) -> None:
    need("onnxruntime", built_in()["onnxruntime-cpu"].absent)
    source, target = ROOT / "examples" / "encoder.keras", tmp_path / "stream.onnx"
    result = call("convert", source, target, "--layer", "summary", "--stateful", "--verify")
    assert result.exit_code == 0 and "B's own file" not in result.output
    report = rc.verify(source, target, layers=["summary"], on=["onnxruntime-cpu"])
    (layer,) = report.document["layers"]
    (run,) = [entry for entry in layer["runs"] if entry["model"] == "B" and entry["executor"] == "onnxruntime-cpu"]
    assert run["own_file"] and run["verdict"] == "equal"


def test_a_gate_that_is_nearly_shut_is_as_inexact_as_another(tmp_path: Path) -> None:
    """What the gate multiplies has no bound here, and moving the weights does not move the gate."""
    _, keras = frameworks()
    layers = keras.layers
    shut = layers.GRU(32, activation="relu", return_sequences=True)
    model = keras.Sequential([layers.Input((6, 3)), shut, layers.GRU(4, activation="relu"), layers.Dense(1)])
    kernel, recurrent, bias = shut.get_weights()
    bias[:, :32] = np.linspace(5, 8, 32)
    bias[0, 64:] = 50
    shut.set_weights([kernel, recurrent, bias])
    model.save(tmp_path / "shut.keras")
    rc.scaffold(tmp_path / "shut.keras", "pytorch", output=tmp_path / "shut.py", verify=True)


def test_each_output_that_is_not_equal_has_a_line_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, keras = frameworks()
    from rnnconvert.formats.pytorch.scaffold.functions import FUNCTIONS

    monkeypatch.setitem(FUNCTIONS, "tanh", "torch.sigmoid({x})")
    layers = keras.layers
    keras.Sequential([layers.Input((6, 3)), layers.LSTM(4, name="l"), layers.Dense(2, "tanh")]).save(tmp_path / "a.keras")
    result = call("scaffold", tmp_path / "a.keras", "-o", tmp_path / "a.py", "--verify")
    first, *lines = result.stderr.splitlines()
    assert result.exit_code == 1 and first.endswith("its outputs are not equal to the source's"), result.stderr
    assert [line.split(":")[0].strip() for line in lines] == ["not equal", "l", "output"]


def test_a_layer_whose_numbers_overflow_is_equal_where_both_do(tmp_path: Path) -> None:
    """Gates without a bound square the state in each step: what overflows, and with which sign, is the order of sums."""
    _, keras = frameworks()
    need("onnxruntime", built_in()["onnxruntime-cpu"].absent)
    layer = keras.layers.LSTM(25, activation="elu", recurrent_activation="elu", return_sequences=True, name="unbounded")
    model = keras.Sequential([keras.layers.Input((7, 25)), layer])
    draw = np.random.default_rng(2)
    layer.set_weights([draw.uniform(-0.6, 0.6, array.shape).astype(np.float32) for array in layer.get_weights()])
    model.save(tmp_path / "unbounded.keras")
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        proof = rc.convert(tmp_path / "unbounded.keras", tmp_path / "unbounded.onnx", verify=True)
    assert proof.report is not None and proof.report.equal


def test_what_is_finite_is_not_equal_to_what_overflowed() -> None:
    truth, output = np.array([1.0, -np.inf, np.nan, np.inf]), Output("case", "y", ("unit",))
    allowance = Allowance([truth], np.dtype(np.float32))
    assert compare(output, np.array([1.0, np.inf, -np.inf, np.nan]), truth, allowance).passed
    for place in (1, 2, 3):
        values = truth.copy()
        values[place] = 3e38
        comparison = compare(output, values, truth, allowance)
        assert not comparison.passed and comparison.worst.index == (place,)
        assert f"found {3e38:.9g}, expected {truth[place]:.9g}" in comparison.message


def _judged(a: Any, b: Any, moved: Any = None, overflows: bool = False, coarse: float = 0.0) -> OutputComparison:
    """What one output shows; by default it moves by a millionth of each value."""
    a, b = np.asarray(a), np.asarray(b)
    moved = [a * (1 + 1e-6 * sign) for sign in (1, -1)] if moved is None else moved
    with np.errstate(invalid="ignore"):
        judge = WholeJudge(np.dtype(np.float32), coarse=coarse)
        return judge.compare(Output("whole", "output"), b, a, truth_moved=moved, overflows=overflows)


def test_no_element_of_a_whole_output_excuses_another() -> None:
    """A unit, a time step and a row that are large; where all rows hold a large number, what it excuses is named."""
    for shape, index in (
        *(((5, 7, 4), index) for index in ((..., 0), (slice(None), 3), (2,), (2, 3, 0))),
        *(((4, 2), index) for index in ((..., 0), (..., 1))),
        *(((2, 4), (row,)) for row in (0, 1)),
    ):
        small = np.random.default_rng(0).uniform(0.1, 1, shape)
        a, b = small.copy(), small + 0.2
        a[index] = b[index] = 1e9
        assert not _judged(a, b).passed and _judged(a, a * (1 + 1e-7)).passed
    triangle = np.where(np.tri(6, dtype=bool), 0.5, -1e9)
    triangle[-1, -2:] = triangle[:1, 0] = -1e9
    other = np.where(triangle > 0, 0.9, triangle)
    assert left_open([_judged(triangle, other)]).startswith("5 of 6 units of output") and not left_open([_judged(triangle, triangle)])
    softmax = np.array([[1, 1e-12, 1e-20]] * 5)
    assert not left_open([_judged(softmax, softmax * (1 + 1e-5))])


def test_functions_that_are_several_units_off_move_an_output_by_as_many() -> None:
    """Moved weights are one unit off: eight times what they move an output by is allowed, and with functions of three units 24 times."""
    a = np.array([0.5, 0.25])
    for times, coarse, passes in ((6, 0.0, True), (12, 0.0, False), (12, 3.0, True), (36, 3.0, False)):
        assert _judged(a, a * (1 + times * 1e-6), coarse=coarse).passed == passes, (times, coarse)
    assert not _judged([1, 2], [1, 3], [np.array([1, 2])], coarse=3.0).passed
    assert not _judged([1.0, np.inf], [1.0, -np.inf], coarse=3.0).passed


def test_integers_are_compared_exactly_and_both_parts_of_complex_numbers_are() -> None:
    for a, b in ((np.array([2**60, 1]), np.array([2**60 + 1, 1])), (np.array([True, False]), np.array([False, False]))):
        assert not _judged(a, b, [a, a]).passed and _judged(a, a, [a, a]).passed
        assert _judged(a, b, [b, a]).passed and left_open([_judged(a, b, [b, a])]), "rounding decides an element"
    turned = np.array([1 + 1j, 2 - 1j])
    assert not _judged(turned, turned.conj()).passed and _judged(turned, turned).passed


def test_what_overflows_in_a_whole_model_overflows_in_one_way() -> None:
    a = np.array([1.0, -np.inf, np.nan, np.inf])
    for place, value in ((1, np.inf), (1, np.nan), (2, np.inf), (3, 5.0)):
        b = a.copy()
        b[place] = value
        assert not _judged(a, b).passed and _judged(a, a).passed
        assert _judged(a, b, overflows=True).passed, "on large inputs both overflow"
    assert not _judged([1.0, 2.0], [1.0, np.nan], overflows=True).passed, "one of them alone does"
    unjudged = [np.array([1.0, np.nan]), np.array([1.0, np.inf])]
    judge, output, a, b = WholeJudge(np.dtype(np.float32)), Output("whole", "output"), np.array([1.0, 2.0]), np.array([1.0, 3.0])
    for comparison in (judge.compare(output, b, a, moved=unjudged), judge.compare(output, b, a, truth_moved=unjudged)):
        assert left_open([comparison]).startswith("1 of 2 units")


def test_outputs_with_one_path_are_all_kept() -> None:
    def named(values: Any) -> dict[str, int]:
        return {name: int(array) for name, array in Witness([], 0, (5, 7, 3)).named(values, np.asarray).items()}

    first, second, third = map(np.array, (1, 2, 3))
    assert named({"": first, "output": second}) == {"output": 1, "output (2)": 2}
    assert named({"a.b": {"c": first}, "a": {"b.c": second}, "d": [third]}) == {"a.b.c": 1, "a.b.c (2)": 2, "d.0": 3}
    with pytest.raises(ValueError, match="two outputs have one name"):
        _outputs([[("y", 1), ("y", 2)]])


def in_place(torch: Any) -> dict[str, Any]:
    """Operators that change what a layer gave, and the input of the model, by name."""

    def written(y: Any) -> Any:
        y[:, 0] = 0
        return y

    return {
        "relu_": lambda y: torch.relu_(y),
        "add": lambda y: y.add_(1),
        "clamp": lambda y: y.clamp_(-0.1, 0.1),
        "mask": lambda y: y.masked_fill_(y > 0, 0.5),
        "written": written,
        "zero": lambda y: y.zero_().add_(0.25),
    }


def test_an_operator_in_place_changes_no_verdict(tmp_path: Path) -> None:
    torch, _ = frameworks()

    class Net(torch.nn.Module):
        def __init__(self, change: Any, kind: str) -> None:
            super().__init__()
            self.rnn = getattr(torch.nn, kind)(3, 4, batch_first=True)
            self.head = torch.nn.Linear(4, 2)
            self.change = change

        def forward(self, x: Any) -> Any:
            y = self.rnn(x.mul_(0.5))[0]
            return self.head(self.change(y))

    def check(case: tuple[str, str]) -> None:
        name, kind = case
        torch.manual_seed(0)
        source = Net(in_place(torch)[name], kind).eval()
        mine = Net(lambda y: in_place(torch)[name](y.clone()), kind).eval()
        report = rc.load_into(mine, source)
        assert report.verify(X, source=source).equal
        assert report.verify(X, source=source, before=[X]).equal
        with torch.no_grad():
            mine.rnn.weight_hh_l0 += 0.1
        assert not report.verify(X, source=source).equal
        for ending, written in (("pt", torch.jit.trace(source, (torch.randn(2, 7, 3),))), ("pt2", None)):
            path = tmp_path / f"{name}_{kind}.{ending}"
            if written is None:
                torch.export.save(torch.export.export(source, (torch.randn(2, 7, 3),)), path)
            else:
                written.save(path)
            done = rc.convert(path, path.with_suffix(".onnx"), verify=True, force=True)
            assert done.report is not None and done.report.verdict == "recurrent layers equal", done.report

    each(drawn([(name, kind) for name in in_place(torch) for kind in ("GRU", "LSTM", "RNN")], 3, "in place"), check, str)


def test_what_a_model_keeps_in_place_is_not_what_it_gave() -> None:
    torch, _ = frameworks()

    class Keeps(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = torch.nn.GRUCell(3, 4)
            self.register_buffer("h", torch.zeros(4, 4))

        def reset_states(self) -> None:
            self.h.zero_()

        def forward(self, x: Any) -> Any:
            for step in range(x.shape[1]):
                self.h.copy_(self.cell(x[:, step], self.h))
            return self.h

    keeps = Keeps()
    with torch.no_grad():
        expected = [keeps(torch.from_numpy(X)).numpy().copy() for _ in range(2)][-1]
    (gave,) = runners()["pytorch"].run(keeps, [X], [], [[X]]).outputs
    assert gave.any() and np.array_equal(gave, expected) and not keeps.h.any()


def test_parameters_without_axes_are_moved_as_others(tmp_path: Path) -> None:
    torch, keras = frameworks()

    class Scaled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = torch.nn.GRU(3, 4)
            self.scale = torch.nn.Parameter(torch.tensor(2.0))

        def forward(self, x: Any) -> Any:
            return self.scale * self.rnn(x)[0]

    source = Scaled().eval()
    report = rc.load_into(mine := Scaled(), source)
    assert report.verify(X, source=source).equal
    example = (torch.randn(4, 7, 3),)
    assert rc.scaffold(source, "pytorch", tmp_path / "scaled.py", example=example, verify=True).equal
    with torch.no_grad():
        mine.scale += 1
    assert not report.verify(X, source=source).equal

    class Scale(keras.layers.Layer):
        def build(self, shape: Any) -> None:
            self.scale = self.add_weight(shape=(), initializer="ones")

        def call(self, x: Any) -> Any:
            return self.scale * x

    scaled = keras.Sequential([keras.layers.Input((7, 3)), keras.layers.GRU(4, name="g"), Scale(name="s")])
    assert 0 < abs(float(runners()["keras"].shaken(scaled, 0).layers[-1].scale) - 1) < 1e-6
    for dtype in (np.float16, np.float32):
        shaken = moved(np.array(2, dtype), float(np.finfo(dtype).eps), np.random.default_rng(0))
        assert shaken.shape == () and shaken != 2 and isinstance(shaken, np.ndarray)
