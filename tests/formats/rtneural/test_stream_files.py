"""Whole models as files that audio plug-ins run step by step: chains written for each format, and its equations run on the file.

The equations are a second transcription (formats/*/run.py), which reads the file's JSON itself; what they must give is what torch or
Keras gives for the model itself.
"""

from __future__ import annotations

import importlib
import json
import random
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import NotEqualError, RefusedError, UsageError
from rnnconvert.formats.c_header import run as c_run
from rnnconvert.running.witness import Witness
from tests.helpers import corpus
from tests.helpers.commands import call
from tests.helpers.drawn import drawn, each
from tests.helpers.frameworks import KERAS_WARNS
from tests.helpers.onnx_graphs import in_onnxruntime
from tests.helpers.requirements import need, needed

pytestmark = [*KERAS_WARNS, pytest.mark.filterwarnings("ignore:The tensor attributes")]
ENDINGS = {"rtneural": ".json", "guitarml": ".json", "nam": ".nam"}
ROUNDING = 2e-6


def ran(path: Path, format: str, x: Array) -> Array:
    """What a file gives for (batch, time, values), by the format's executor."""
    seen = Witness([], 0, (2, 3), [[("", x)]])
    importlib.import_module(f"rnnconvert.formats.{format}.run").witness({"file": str(path), "witness": seen})
    return np.asarray(seen.answer()["outputs"][0][0][1])


@dataclass
class Drawing:
    """A random chain in torch: its modules, the words that state its order, and what it computes."""

    generator: random.Random
    inputs: int
    width: int = 0
    modules: dict[str, Any] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)
    steps: list[Callable[[Any], Any]] = field(default_factory=list)

    def recurrent(self, kind: str, units: int, layers: int) -> None:
        import torch

        module = getattr(torch.nn, kind)(self.width, units, layers, batch_first=True)
        self.place(module, ":tanh" if kind == "RNN" else "", units, lambda y: module(y)[0])

    def dense(self, units: int) -> None:
        import torch

        module = torch.nn.Linear(self.width, units, bias=self.generator.random() < 0.8)
        self.place(module, ":dense" if module.bias is None else "", units, module)

    def prelu(self) -> None:
        import torch

        module = torch.nn.PReLU(self.generator.choice([1, self.width]))
        module.weight.data.uniform_(-0.5, 0.5)
        self.place(module, "", self.width, lambda y: torch.where(y >= 0, y, y * module.weight))

    def function(self) -> None:
        import torch

        word = self.generator.choice(["tanh", "relu", "sigmoid", "softmax", "elu"])
        called = {"softmax": lambda y: torch.softmax(y, -1), "elu": torch.nn.functional.elu}.get(word) or getattr(torch, word)
        self.words.append(word)
        self.steps.append(called)

    def place(self, module: Any, stated: str, units: int, step: Callable[[Any], Any]) -> None:
        name = f"{type(module).__name__.lower()}{len(self.modules)}"
        self.modules[name] = module
        self.words.append(name + stated)
        self.steps.append(step)
        self.width = units

    def __call__(self, x: Array) -> Array:
        import torch

        y = read = torch.tensor(x)
        with torch.no_grad():
            for step in self.steps:
                y = step(y)
            return np.asarray(y + read[:, :, : self.width] if self.words[-1] == "skip" else y)

    def write(self, path: Path) -> str:
        """Save the weights alone, and return the order of the layers."""
        import torch

        torch.save(torch.nn.ModuleDict(self.modules).state_dict(), path)
        return " ".join(self.words)


def chain_for(format: str, number: int) -> Drawing:
    """A random chain that a format holds."""
    import torch

    generator = random.Random(f"{format} {number}")
    torch.manual_seed(number)
    inputs = generator.choice([1, 1, 2, 3])
    chain = Drawing(generator, inputs, inputs)
    if format == "rtneural":
        for _ in range(generator.randint(1, 5)):
            kind = generator.choice(["recurrent", "recurrent", "dense", "dense", "prelu"])
            if kind == "recurrent":
                chain.recurrent(generator.choice(["LSTM", "GRU"]), generator.choice([1, 4, 8, 13]), generator.choice([1, 1, 2]))
            elif kind == "dense" or not chain.modules:
                chain.dense(generator.choice([1, 3, 8]))
            else:
                chain.prelu()
            if generator.random() < 0.5:
                chain.function()
        skips = chain.width == 1 and generator.random() < 0.5
    elif format == "guitarml":
        chain.recurrent(generator.choice(["LSTM", "GRU", "RNN"]), generator.choice([1, 4, 8]), generator.randint(1, 3))
        chain.dense(generator.randint(1, inputs))
        skips = generator.random() < 0.6
    else:
        units = generator.choice([1, 4, 8])
        chain.recurrent("LSTM", units, generator.randint(1, 3))
        if generator.random() < 0.4:
            chain.recurrent("LSTM", units, 1)
        chain.dense(generator.choice([1, 1, 2]))
        skips = False
    chain.words += ["skip"] * skips
    return chain


@pytest.mark.parametrize("format", ENDINGS)
def test_random_chains_give_what_torch_gives(format: str, tmp_path: Path) -> None:
    """Written from weights alone with their order, run by the format's equations, read again, and run as ONNX by the equations' side."""
    needed("torch", "torch")

    def check(number: int) -> None:
        chain, x = chain_for(format, number), np.random.default_rng(number).standard_normal((2, 20, 1)).astype(np.float32)
        x = np.concatenate([x * factor for factor in range(1, chain.inputs + 1)], axis=2)
        source, target = tmp_path / f"{number}.pt", tmp_path / f"{number}{ENDINGS[format]}"
        rc.export_model(source, target, chain=chain.write(source), format=format)
        assert np.abs(ran(target, format, x) - chain(x)).max() < ROUNDING
        again = tmp_path / f"again{number}{ENDINGS[format]}"
        rc.export_model(target, again, format=format)
        assert np.array_equal(ran(again, format, x), ran(target, format, x))

    each(drawn(range(100), 8, f"chains for {format}"), check)


def _random_keras(number: int) -> Any:
    """A random chain in Keras: layers that weights alone do not state."""
    keras = needed("keras", "keras")
    generator, layers = random.Random(number), keras.layers
    keras.utils.set_random_seed(number)
    x = y = keras.Input((None, generator.choice([1, 2, 3])))
    for _ in range(generator.randint(2, 5)):
        groups = 2 if y.shape[-1] % 2 == 0 else 1
        taps = {"groups": groups, "dilation_rate": generator.choice([1, 2, 3]), "use_bias": generator.random() < 0.5}
        makers = (
            lambda taps=taps: layers.Conv1D(
                generator.choice([2, 4]), generator.choice([1, 2, 3]), padding="causal", activation="elu", **taps
            ),
            lambda: layers.BatchNormalization(
                scale=generator.random() < 0.7, moving_mean_initializer="normal", beta_initializer="normal", gamma_initializer="uniform"
            ),
            lambda: layers.PReLU(shared_axes=[1], alpha_initializer="uniform"),
            lambda: layers.LSTM(generator.choice([3, 8]), return_sequences=True),
            lambda: layers.GRU(generator.choice([3, 8]), return_sequences=True, bias_initializer="normal"),
            lambda: layers.Dense(generator.choice([2, 4]), activation=generator.choice([None, "softmax", "sigmoid"])),
            layers.LeakyReLU,
            lambda: layers.Dropout(0.5),
        )
        y = generator.choice(makers)()(y)
    return keras.Model(x, y)


def test_random_chains_of_keras_give_what_keras_gives(tmp_path: Path) -> None:
    def check(number: int) -> None:
        model = _random_keras(number)
        if not model.weights:
            return
        model.save(tmp_path / f"{number}.keras")
        rc.export_model(tmp_path / f"{number}.keras", tmp_path / f"{number}.json")
        x = np.random.default_rng(number).standard_normal((2, 20, model.input_shape[-1])).astype(np.float32)
        assert np.abs(ran(tmp_path / f"{number}.json", "rtneural", x) - model.predict(x, verbose=0)).max() < ROUNDING

    each(drawn(range(100), 5, "chains of Keras"), check)


def _module(forward: Callable[[Any, Any], Any], time_first: bool = False, inputs: int = 1) -> Any:
    torch = needed("torch", "torch")
    torch.manual_seed(1)

    class Amp(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rec = torch.nn.LSTM(inputs, 8, 2, batch_first=not time_first)
            self.lin = torch.nn.Linear(8, 1)
            self.conv = torch.nn.Conv1d(inputs, inputs, 3, padding=4, dilation=2)

        def forward(self, x: Any) -> Any:
            return forward(self, x)

    return Amp().eval()


MODULES: dict[str, tuple[Callable[[Any, Any], Any], bool, int]] = {
    "input added": (lambda m, x: m.lin(m.rec(x)[0]) + x, False, 1),
    "time first": (lambda m, x: x + m.lin(m.rec(x)[0]), True, 1),
    "first of two added": (lambda m, x: m.lin(m.rec(x)[0]) + x[:, :, :1], False, 2),
    "last step": (lambda m, x: m.lin(m.rec(x)[0][:, -1]), False, 1),
    "scaled": (lambda m, x: 2 * m.lin(m.rec(x * 0.5)[0]), False, 1),
    "padded and cut": (lambda m, x: m.lin(m.rec(m.conv(x.transpose(1, 2))[:, :, :-4].transpose(1, 2))[0]), False, 2),
}


@pytest.mark.parametrize("name", MODULES)
def test_a_live_module_is_proved_whichever_axes_it_has(name: str, tmp_path: Path) -> None:
    torch = needed("torch", "torch")
    forward, time_first, inputs = MODULES[name]
    done = rc.export_model(_module(forward, time_first, inputs), tmp_path / "a.aidax", example=torch.zeros(5, 2, inputs), verify=True)
    assert done.equal
    assert any("is the time" in note for note in done.notes)


BRANCHES: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "two readers": (lambda m, x: m.lin(m.rec(x)[0] * m.rec(x)[0]), "branch|multiply|read"),
    "sum inside": (lambda m, x: m.lin(m.rec(x + m.lin(m.rec(x)[0]))[0]), "last that a chain computes"),
    "future": (lambda m, x: m.lin(m.rec(m.conv(x.transpose(1, 2))[:, :, 2:-2].transpose(1, 2))[0]), "slice"),
    "two outputs": (lambda m, x: m.rec(x), "outputs"),
    "flipped": (lambda m, x: m.lin(m.rec(x.flip(1))[0]), "flip"),
    "before its function": (lambda m, x: m.lin(m.rec(x)[0]).tanh() + m.lin(m.rec(x)[0]), "branch|added"),
}


@pytest.mark.parametrize("name", BRANCHES)
def test_what_is_no_chain_is_refused_by_name(name: str, tmp_path: Path) -> None:
    torch = needed("torch", "torch")
    forward, reason = BRANCHES[name]
    with pytest.raises(RefusedError, match=reason):
        rc.export_model(_module(forward), tmp_path / "a.json", example=torch.zeros(2, 5, 1))
    assert not list(tmp_path.iterdir())


REFUSED = {
    ("a.nam", "lstm tanh fc"): "for guitarml|activation 'tanh'.*written for .*onnx.*rtneural",
    ("a.nam", "lstm fc skip"): "added to the output.*written for .*guitarml.*onnx.*rtneural",
    ("a.json", "lstm gelu fc"): "activation 'gelu'.*written for .*onnx",
    ("a.nam", "lstm"): "recurrent.*written for .*onnx.*rtneural",
}


@pytest.mark.parametrize(("target", "order"), REFUSED)
def test_a_refusal_names_the_formats_that_hold_the_model(target: str, order: str, tmp_path: Path) -> None:
    weights = _weights(tmp_path)
    with pytest.raises(RefusedError, match=REFUSED[target, order]):
        rc.export_model(weights, tmp_path / target, chain=order)


def _weights(folder: Path, **modules: Any) -> Path:
    torch = needed("torch", "torch")
    torch.manual_seed(2)
    modules = modules or {"lstm": torch.nn.LSTM(1, 8, 2), "fc": torch.nn.Linear(8, 1)}
    torch.save(torch.nn.ModuleDict(modules).state_dict(), folder / "weights.pt")
    return folder / "weights.pt"


@pytest.mark.parametrize("target", ["a.json", "a.nam", "a.onnx", "a.aidax"])
def test_the_command_that_asks_for_an_order_works(target: str, tmp_path: Path) -> None:
    asked = call("export", _weights(tmp_path), tmp_path / target)
    assert asked.exit_code == 2 and "'lstm fc'" in asked.stderr
    words = shlex.split(" ".join(asked.stderr.split()).rpartition("rnnconvert export ")[2])
    done = call("export", *words)
    assert done.exit_code == 0 and "the order of its layers is the caller's: lstm fc" in done.output, done.output
    assert (tmp_path / target).is_file()


def test_an_order_that_sizes_do_not_show_is_not_proposed(tmp_path: Path) -> None:
    torch = needed("torch", "torch")
    weights = _weights(tmp_path, a=torch.nn.LSTM(4, 4), b=torch.nn.Linear(4, 4), c=torch.nn.Linear(4, 4))
    asked = call("export", weights, tmp_path / "a.json")
    assert asked.exit_code == 2 and "by their names: a, b, c; no order of all, or several" in asked.stderr.replace("\n", " ")


def test_an_order_is_not_proposed_against_that_of_the_file(tmp_path: Path) -> None:
    """Sizes allow every rotation of layers that begin and end with as many values; code makes them in the order of its calls, as a rule."""
    torch = needed("torch", "torch")
    modules_around = {"before": torch.nn.Linear(1, 8), "a": torch.nn.LSTM(8, 8, 2), "out": torch.nn.Linear(8, 1)}
    for modules, orders in (
        (modules_around, ["before a out", "a out before"]),
        ({**modules_around, "before": torch.nn.Linear(2, 8)}, ["before a out"]),
        ({"out": torch.nn.Linear(8, 1), "lstm": torch.nn.LSTM(1, 8)}, ["out lstm", "lstm out"]),
        ({"fc": torch.nn.Linear(8, 1), "lstm": torch.nn.LSTM(1, 8)}, ["lstm fc"]),  # sorted, as some writers have them
        ({"lstm": torch.nn.LSTM(1, 8), "fc": torch.nn.Linear(8, 1)}, ["lstm fc"]),
    ):
        weights = _weights(tmp_path, **modules)
        with pytest.raises(UsageError) as asked:
            rc.export_model(weights, tmp_path / "a.onnx")
        assert re.findall(r"chain[ =]'([^']*)'", str(asked.value)) == orders, str(asked.value)
        offered = " ".join(call("convert", weights, tmp_path / "b.onnx", "--force").output.split())
        assert f"--chain '{orders[0]}'" in offered and ("have this order" in offered) == (len(orders) > 1)


WRONG_ORDERS = {
    "lstm nothing": "'nothing' names no layer",
    "lstm fc fc": "named twice",
    "tanh lstm": "stands first",
    "": "is empty",
    "lstm:relu fc": "does not describe it",
}


@pytest.mark.parametrize("order", WRONG_ORDERS)
def test_words_that_are_no_order_are_refused(order: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=WRONG_ORDERS[order]):
        rc.export_model(_weights(tmp_path), tmp_path / "a.json", chain=order)


def test_an_order_of_a_file_that_states_its_own_is_refused(tmp_path: Path) -> None:
    rc.export_model(_weights(tmp_path), tmp_path / "a.json", chain="lstm fc")
    with pytest.raises(UsageError, match="states the order"):
        rc.export_model(tmp_path / "a.json", tmp_path / "b.nam", chain="lstm dense")


def test_a_chain_that_gives_its_last_step_is_a_whole_onnx_model(tmp_path: Path) -> None:
    """An embedding that no bias shows, a function, and the last step."""
    torch = needed("torch", "torch")
    modules = {"emb": torch.nn.Embedding(20, 6), "gru": torch.nn.GRU(6, 8, batch_first=True), "out": torch.nn.Linear(8, 3)}
    rc.export_model(_weights(tmp_path, **modules), tmp_path / "a.onnx", chain="emb gru last relu out")
    x = np.random.default_rng(0).integers(0, 20, (2, 9))
    with torch.no_grad():
        expected = modules["out"](torch.relu(modules["gru"](modules["emb"](torch.tensor(x)))[0][:, -1])).numpy()
    assert np.abs(in_onnxruntime(tmp_path / "a.onnx", x)[0] - expected).max() < ROUNDING


@pytest.mark.parametrize(("name", "format"), [("a.json", "rtneural"), ("b.json", "guitarml"), ("a.onnx", "onnx")])
def test_convert_names_the_export_that_keeps_the_head(name: str, format: str, tmp_path: Path) -> None:
    rc.export_model(_weights(tmp_path), tmp_path / "whole.nam", chain="lstm fc")
    done = call("convert", tmp_path / "whole.nam", tmp_path / name, "--to", format)
    line = " ".join(done.output.split())
    assert "the whole model: rnnconvert export" in line, line
    words = shlex.split(line.rpartition("the whole model: rnnconvert export ")[2].partition("#")[0])[:6]
    words = words[: words.index("--force") + 1]
    assert call("export", *words).exit_code == 0


REAL = {
    "rtneural-models/full_model.json": "rtneural", "klon-centaur/centaur.json": "rtneural", "klon-centaur/centaur_50.json": "rtneural",
    "nam-lstm/lstm.nam": "nam",
}  # fmt: skip


@pytest.mark.parametrize("name", REAL)
@pytest.mark.parametrize("between", ["a.onnx", "a.h"])
def test_a_real_file_goes_there_and_back_with_its_head(name: str, between: str, tmp_path: Path) -> None:
    if corpus.absent():
        pytest.skip(corpus.absent())
    needed("onnxruntime", "onnxruntime")
    need("gcc", c_run.absent({}))
    back = tmp_path / f"back{Path(name).suffix}"
    assert rc.export_model(corpus.FOLDER / name, tmp_path / between, verify=True).equal
    assert rc.export_model(tmp_path / between, back, verify=True).equal
    width = 3 if "centaur.json" in name else 1
    x = np.random.default_rng(1).normal(size=(2, 40, width)).astype(np.float32)
    assert np.abs(ran(back, REAL[name], x) - ran(corpus.FOLDER / name, REAL[name], x)).max() < ROUNDING


@pytest.mark.parametrize("between", ["a.onnx", "a.h"])
@pytest.mark.parametrize("format", ["guitarml", "rtneural"])
def test_skips_and_gains_come_back(format: str, between: str, tmp_path: Path) -> None:
    needed("onnxruntime", "onnxruntime")
    need("gcc", c_run.absent({}))
    torch = needed("torch", "torch")
    torch.manual_seed(3)
    layers = torch.nn.ModuleDict({"rec": torch.nn.GRU(1, 8, 2), "lin": torch.nn.Linear(8, 1)})
    torch.save(layers.state_dict(), tmp_path / "w.pt")
    first, back = tmp_path / "first.json", tmp_path / "back.json"
    rc.export_model(tmp_path / "w.pt", first, format=format, chain="rec lin skip")
    document = json.loads(first.read_text())
    gains = {"in_gain": 3.5, "out_gain": -2.0} if format == "rtneural" else {}
    first.write_text(json.dumps(document | gains))
    rc.export_model(first, tmp_path / between)
    rc.export_model(tmp_path / between, back, format=format)
    again = json.loads(back.read_text())
    assert again["in_skip"] == 1 if format == "rtneural" else again["model_data"] == document["model_data"]
    assert {key: round(again[key], 5) for key in gains} == gains
    x = np.random.default_rng(1).normal(size=(2, 40, 1)).astype(np.float32)
    assert np.abs(ran(back, format, x) - ran(first, format, x)).max() < ROUNDING


@pytest.mark.parametrize("name", ["gru", "gru_1d", "lstm", "lstm_1d"])
def test_rtneurals_own_models_give_what_keras_gave(name: str) -> None:
    if corpus.absent():
        pytest.skip(corpus.absent())
    folder = corpus.FOLDER / "rtneural-models"
    x, y = (np.loadtxt(folder / f"{name}_{letter}_python.csv", delimiter=",", ndmin=1) for letter in "xy")
    outputs = ran(folder / f"{name}.json", "rtneural", x.reshape(1, -1, 1).astype(np.float32))
    assert np.abs(outputs.reshape(-1) - y.reshape(-1)).max() < ROUNDING


def test_a_file_that_computes_something_else_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The proof would see a gate order that is wrong: the writer's, and not the equations'."""
    torch = needed("torch", "torch")
    from rnnconvert.scaffolding import stream

    def wrong(stack: Any, format: str) -> Any:
        layout, arrays = packed(stack, format)
        return layout, {name: np.roll(np.asarray(array), 1, axis=-1) for name, array in arrays.items()}

    packed = stream.packed
    monkeypatch.setattr(stream, "packed", wrong)
    with pytest.raises(NotEqualError):
        rc.export_model(_module(MODULES["last step"][0]), tmp_path / "a.json", example=torch.zeros(2, 5, 1), verify=True)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("skip", ["", " skip"])
@pytest.mark.parametrize("cell", ["LSTM", "GRU"])
def test_samples_that_aida_tries_a_file_with(cell: str, skip: str, tmp_path: Path) -> None:
    torch = needed("torch", "torch")
    torch.manual_seed(4)
    layers = torch.nn.ModuleDict({"rec": getattr(torch.nn, cell)(1, 8, batch_first=True), "lin": torch.nn.Linear(8, 1)})
    torch.save(layers.state_dict(), tmp_path / "w.pt")
    path = tmp_path / "a.aidax"
    rc.export_model(tmp_path / "w.pt", path, chain=f"rec lin{skip}", settings=["samplerate=44100", "input_batch=70"])
    document = json.loads(path.read_text())
    x = torch.tensor(document["input_batch"]).reshape(1, 70, 1)
    with torch.no_grad():
        y = layers["lin"](layers["rec"](x)[0]) + (x if skip else 0)
    assert np.abs(y.reshape(-1).numpy() - document["output_batch"]).max() < ROUNDING
    assert document["samplerate"] == 44100 and "70 steps" in call("inspect", path).output


def test_a_sample_rate_is_written_for_an_amp(tmp_path: Path) -> None:
    torch = needed("torch", "torch")
    torch.save(torch.nn.ModuleDict({"rec": torch.nn.LSTM(1, 3), "lin": torch.nn.Linear(3, 1)}).state_dict(), tmp_path / "w.pt")
    rc.export_model(tmp_path / "w.pt", tmp_path / "a.nam", chain="rec lin", settings=["sample_rate=48000"])
    assert json.loads((tmp_path / "a.nam").read_text())["sample_rate"] == 48000
    for word in ("0", "-4", str(1 << 21), "fast", "٤٤"):
        with pytest.raises(UsageError, match="sample_rate"):
            rc.export_model(tmp_path / "w.pt", tmp_path / "b.nam", chain="rec lin", settings=[f"sample_rate={word}"])
    with pytest.raises(RefusedError, match="input_batch"):
        rc.export_model(_module(MODULES["last step"][0]), tmp_path / "a.json", example=torch.zeros(2, 5, 1), settings=["input_batch=9"])
