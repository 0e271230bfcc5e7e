"""Faults around recurrent layers are named by running whole models: each that is planted, and nothing else."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.diagnosis.models import ModelDiagnosis
from rnnconvert.running.registry import built_in
from tests.helpers import drawn
from tests.helpers.commands import call
from tests.helpers.drawn import each, looped
from tests.helpers.requirements import need

pytestmark = pytest.mark.filterwarnings("ignore:::")

ENDINGS = (".onnx", ".pt", ".keras")
Array = np.ndarray
Weights = dict[str, Array]


def weights_of(seed: int, tokens: bool, width: int) -> Weights:
    """The weights of an embedding, an LSTM and two dense layers, as torch lays them."""
    generator = np.random.default_rng(seed)
    shapes: dict[str, tuple[int, ...]] = {"emb": (11, 3)} if tokens else {}
    shapes |= {"l.ih": (4 * width, 3), "l.hh": (4 * width, width), "l.b": (4 * width,)}
    shapes |= {"mid.w": (width, width), "mid.b": (width,), "head.w": (4, width), "head.b": (4,)}
    return {name: (0.7 * generator.normal(size=shape)).astype(np.float32) for name, shape in shapes.items()}


def module_of(weights: Weights, before: Any = None, behind: Any = None) -> Any:
    """A torch module, with functions of what it reads and gives."""
    import torch
    from torch import nn

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            width = weights["mid.b"].size
            self.emb = nn.Embedding(*weights["emb"].shape) if "emb" in weights else None
            self.l, self.mid, self.head = nn.LSTM(3, width, batch_first=True), nn.Linear(width, width), nn.Linear(width, 4)
            parts = {"l.ih": self.l.weight_ih_l0, "l.hh": self.l.weight_hh_l0, "l.b": self.l.bias_ih_l0, "mid.w": self.mid.weight}
            parts |= {"mid.b": self.mid.bias, "head.w": self.head.weight, "head.b": self.head.bias}
            parts |= {"emb": self.emb.weight} if self.emb is not None else {}
            self.l.bias_hh_l0.data.zero_()
            for name, parameter in parts.items():
                parameter.data = torch.from_numpy(weights[name].copy())

        def forward(self, x: Any) -> Any:
            x = before(x) if before else x
            x = x if self.emb is None else self.emb(x)
            y = self.head(torch.tanh(self.mid(self.l(x)[0])))
            return behind(y) if behind else y

    return Model().eval()


def saved(path: Path, weights: Weights, before: Any = None, behind: Any = None) -> Path:
    """The file of a model in the format of its ending."""
    if path.suffix == ".keras":
        import keras

        layers = keras.layers
        tokens = "emb" in weights
        x = inputs = layers.Input((None,) if tokens else (None, 3), dtype="int32" if tokens else "float32")
        x = before(x) if before else x
        x = layers.Embedding(*weights["emb"].shape, weights=[weights["emb"]], name="emb")(x) if tokens else x
        width = weights["mid.b"].size
        lstm = layers.LSTM(width, return_sequences=True, name="l")
        x = lstm(x)
        lstm.set_weights([weights["l.ih"].T, weights["l.hh"].T, weights["l.b"]])
        for name, units, activation in (("mid", width, "tanh"), ("head", 4, None)):
            dense = layers.Dense(units, activation=activation, name=name)
            x = dense(x)
            dense.set_weights([weights[f"{name}.w"].T, weights[f"{name}.b"]])
        keras.Model(inputs, behind(x) if behind else x).save(path)
        return path
    import torch

    module = module_of(weights, before, behind)
    example = torch.ones((2, 6), dtype=torch.int64) if "emb" in weights else torch.ones(2, 6, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if path.suffix == ".pt":
            torch.jit.save(torch.jit.trace(module, example), path)
        else:
            axes = {name: {0: "batch", 1: "time"} for name in "xy"}
            torch.onnx.export(module, (example,), path, dynamo=False, input_names=["x"], output_names=["y"], dynamic_axes=axes)
    return path


def of_keras(ending: str, keras: Callable[[Any], Any], torch: Callable[[Any], Any]) -> Any:
    """What is planted in a graph, in the words of the framework."""
    return keras if ending == ".keras" else torch


def end(name: str) -> Callable[[str], dict[str, Any]]:
    def planted(ending: str) -> dict[str, Any]:
        def keras(x: Any) -> Any:
            from keras import layers

            return layers.Activation(name)(x)

        def torch(y: Any) -> Any:
            from torch.nn import functional

            return getattr(functional, name)(y, **({"dim": -1} if "softmax" in name else {}))

        return {"behind": of_keras(ending, keras, torch)}

    return planted


def scaled(factor: float, offset: float, place: str = "before") -> Callable[[str], dict[str, Any]]:
    def planted(ending: str) -> dict[str, Any]:
        def keras(x: Any) -> Any:
            from keras import layers

            return layers.Rescaling(factor, offset)(x)

        return {place: of_keras(ending, keras, lambda x: x * factor + offset)}

    return planted


def flipped(*places: str) -> Callable[[str], dict[str, Any]]:
    def planted(ending: str) -> dict[str, Any]:
        if ending == ".keras":
            raise drawn.NotComparedError("Keras has no layer that turns its input around")
        return dict.fromkeys(places, lambda x: x.flip(1))

    return planted


def changed(name: str, change: Callable[[Array], Array]) -> Callable[[Weights], Weights]:
    return lambda weights: {**weights, name: np.ascontiguousarray(change(weights[name])).astype(np.float32)}


def without_first(table: Array) -> Array:
    return np.concatenate([np.zeros_like(table[:1]), table[1:]])


IN_GRAPHS: dict[str, Callable[[str], dict[str, Any]]] = {
    **{f"{name} at the end": end(name) for name in ("softmax", "log_softmax", "sigmoid", "tanh", "relu")},
    "input multiplied": scaled(1 / 255, 0),
    "input multiplied and shifted": scaled(0.37, -0.6),
    "input shifted": scaled(1, 0.5),
    "output multiplied": scaled(3.5, 0, "behind"),
    "output multiplied and shifted": scaled(3.5, 2, "behind"),
    "input reversed along axis 1": flipped("before"),
    "output reversed along axis 1": flipped("behind"),
    "input and output reversed along axis 1": flipped("before", "behind"),
}
IN_WEIGHTS: dict[str, Callable[[Weights], Weights]] = {
    "transposed": changed("mid.w", lambda matrix: matrix.T),
    "negated": changed("head.b", lambda bias: -bias),
    "missing": changed("mid.b", lambda bias: 0 * bias),
    "row 0 zeroed": changed("emb", without_first),
    "rows 1 lower": changed("emb", lambda table: np.roll(table, 1, axis=0)),
    "rows 1 higher": changed("emb", lambda table: np.roll(table, -1, axis=0)),
}


def ready(*endings: str) -> None:
    executors = {".onnx": ("onnxruntime", "onnxruntime-cpu"), ".pt": ("torch", "torch-cpu"), ".keras": ("keras", "keras-tensorflow")}
    for ending in (".pt", *endings):
        name, executor = executors[ending]
        need(name, built_in()[executor].absent)


def model_diagnosis(findings: Any) -> ModelDiagnosis:
    assert isinstance(findings.model, ModelDiagnosis), str(findings)
    return findings.model


def planted(fault: str, seed: int, folder: Path, endings: tuple[str, str]) -> tuple[Path, Path]:
    """Files of two models, the second with a fault."""
    of_table = fault.startswith("row")
    weights = weights_of(seed, of_table, 5 + seed % 3)
    in_graph = IN_GRAPHS[fault](endings[1]) if fault in IN_GRAPHS else {}
    wrong = IN_WEIGHTS[fault](weights) if fault in IN_WEIGHTS else weights
    return saved(folder / f"right{endings[0]}", weights), saved(folder / f"wrong{endings[1]}", wrong, **in_graph)


@looped(3, case=[(fault, a, b) for fault in (*IN_GRAPHS, *IN_WEIGHTS) for a in ENDINGS for b in ENDINGS])
def test_a_planted_fault_is_named_and_no_other(case: tuple[str, str, str], tmp_path: Path) -> None:
    fault, *endings = case
    ready(*endings)
    seed = random.Random(f"{drawn.SEED} {case}").randrange(1000)
    right, wrong = planted(fault, seed, tmp_path, (endings[0], endings[1]))
    for files in ((right, wrong), (wrong, right)):
        findings = rc.diagnose(*files)
        diagnosis = model_diagnosis(findings)
        assert findings.verdict.exit_code() == 1 and diagnosis.status == "not equal", str(findings)
        assert diagnosis.fault.endswith(fault.replace("rows 1 ", "") if fault.startswith("rows") and files[0] is wrong else fault) or (
            files[0] is wrong and fault.split()[0] in diagnosis.fault
        ), str(findings)
        assert sum(" does if " in sentence for sentence in diagnosis.sentences) == 1, str(findings)


@looped(2, case=[(tokens, a, b) for tokens in (False, True) for a in ENDINGS for b in ENDINGS])
def test_models_without_a_fault_are_silent(case: tuple[bool, str, str], tmp_path: Path) -> None:
    tokens, *endings = case
    ready(*endings)
    for seed in (1, 2):
        weights = weights_of(seed, tokens, 4 + seed)
        behind = [IN_GRAPHS["softmax at the end"](ending) if seed == 2 else {} for ending in endings]
        a, b = (
            saved(tmp_path / f"{label}{seed}{ending}", weights, **more) for label, ending, more in zip("ab", endings, behind, strict=True)
        )
        findings = rc.diagnose(a, b)
        assert model_diagnosis(findings) == ModelDiagnosis("equal"), str(findings)
        assert findings.verdict.scope == "whole" and findings.verdict.exit_code() == 0
        assert str(findings).splitlines()[-1].startswith(f"{a} and {b} compute the same, run whole")


def test_what_no_fault_explains_is_not_named(tmp_path: Path) -> None:
    ready(".onnx")
    weights = weights_of(5, False, 6)
    noise = np.random.default_rng(1)
    wrong = {
        "another head": changed("head.w", lambda matrix: matrix + 0.1 * noise.normal(size=matrix.shape)),
        "a matrix transposed and a bias negated": lambda old: IN_WEIGHTS["negated"](IN_WEIGHTS["transposed"](old)),
        "a head of zeros": changed("head.w", lambda matrix: 0 * matrix),
    }
    right = saved(tmp_path / "right.onnx", weights)

    def check(name: str) -> None:
        findings = rc.diagnose(right, saved(tmp_path / f"{name}.onnx", wrong[name](weights)))
        diagnosis = model_diagnosis(findings)
        assert diagnosis.status == "not equal" and not diagnosis.fault and not diagnosis.sentences, str(findings)
        assert "no fault that was tried explains it" in str(findings)

    each(wrong, check)


def test_a_function_that_is_saturated_or_constant_is_not_named(tmp_path: Path) -> None:
    ready(".onnx")
    weights = weights_of(1, False, 5)
    large = {**weights, "head.w": 1e6 * weights["head.w"], "head.b": 1e6 * weights["head.b"]}
    small = {**weights, "head.w": 1e-6 * weights["head.w"], "head.b": 1e-6 * weights["head.b"]}
    cases = {
        "a step": (large, lambda y: (y > 0) * 1.0),
        "a half of all": (small, lambda y: 0 * y + 0.5),
        "a quarter of all": (small, lambda y: 0 * y + 0.25),
    }

    def check(name: str) -> None:
        rescaled, behind = cases[name]
        a, b = saved(tmp_path / f"{name} a.onnx", rescaled), saved(tmp_path / f"{name} b.onnx", rescaled, behind=behind)
        for files in ((a, b), (b, a)):
            findings = rc.diagnose(*files)
            diagnosis = model_diagnosis(findings)
            assert diagnosis.status != "equal" and not diagnosis.fault and not diagnosis.sentences, str(findings)

    each(cases, check)


def test_faults_that_cannot_be_told_apart_are_all_named(tmp_path: Path) -> None:
    ready(".onnx")
    weights = weights_of(6, False, 5)
    weights["head.b"] = 0 * weights["head.b"] + 0.25
    weights["mid.b"] = np.zeros_like(weights["mid.b"])
    wrong = {**weights, "mid.w": -weights["mid.w"], "head.w": weights["head.w"]}  # tanh is odd: so is the head's other sign
    findings = rc.diagnose(saved(tmp_path / "a.onnx", weights), saved(tmp_path / "b.onnx", wrong))
    assert model_diagnosis(findings).fault.endswith("negated"), str(findings)  # the head is the same in both files
    sample = {"x": np.random.default_rng(0).normal(size=(3, 8, 3)).astype(np.float32)}
    import torch

    sample["y"] = module_of(wrong)(torch.from_numpy(sample["x"])).detach().numpy()
    by_sample = rc.diagnose(tmp_path / "a.onnx", io=sample)
    diagnosis = model_diagnosis(by_sample)
    assert diagnosis.fault == "" and diagnosis.sentences[0] == "these inputs and weights cannot distinguish these:", str(by_sample)
    assert len(diagnosis.sentences) == 3 and not by_sample.equal


SAMPLES: dict[str, Callable[[Array, Callable[[Array], Array]], tuple[Array, Array]]] = {
    "": lambda x, run: (x, run(x)),
    "batch and time exchanged": lambda x, run: (x.swapaxes(0, 1), run(x).swapaxes(0, 1)),
    "softmax at the end": lambda x, run: (x, np.exp(run(x)) / np.exp(run(x)).sum(axis=-1, keepdims=True)),
    "input multiplied": lambda x, run: (255 * x, run(x)),
    "input standardised by feature": lambda x, run: (3 * x + 2, run((x - x.mean(axis=(0, 1))) / x.std(axis=(0, 1)))),
    "output multiplied and shifted": lambda x, run: (x, 100 * run(x) + 3),
    "input reversed along axis 1": lambda x, run: (x, run(x[:, ::-1])),
    "features reversed": lambda x, run: (x, run(x[..., ::-1])),
    "padding first": lambda x, run: (x, run(np.stack([np.roll(x[0], 3, axis=0), *x[1:]]))),
}


@looped(3, case=[(fault, ending) for fault in SAMPLES for ending in ENDINGS])
def test_a_sample_of_a_whole_model(case: tuple[str, str], tmp_path: Path) -> None:
    fault, ending = case
    ready(ending)
    weights = weights_of(8, False, 5)
    file = saved(tmp_path / f"model{ending}", weights)
    import torch

    x = np.random.default_rng(3).normal(size=(4, 9, 3)).astype(np.float32)
    x[0, -3:] = 0
    module = module_of(weights)
    x, y = SAMPLES[fault](x, lambda x: module(torch.from_numpy(np.ascontiguousarray(x, np.float32))).detach().numpy())
    np.savez(tmp_path / "sample.npz", x=x, y=y.astype(np.float32))
    findings = rc.diagnose(file, io=tmp_path / "sample.npz")
    diagnosis = model_diagnosis(findings)
    assert (diagnosis.fault, findings.equal) == (fault, not fault), str(findings)
    assert call("diagnose", str(file), "--io", str(tmp_path / "sample.npz")).exit_code == (1 if fault else 0)


def test_a_sample_of_tokens_is_one_of_the_whole_model(tmp_path: Path) -> None:
    ready(".onnx", ".pt")
    import torch

    weights = weights_of(9, True, 5)
    x = np.random.default_rng(3).integers(1, 10, (4, 9))
    for ending in (".onnx", ".pt"):
        file = saved(tmp_path / f"model{ending}", weights)
        for fault, other in (("", weights), ("rows 1 lower", IN_WEIGHTS["rows 1 lower"](weights))):
            findings = rc.diagnose(file, io={"x": x, "y": module_of(other)(torch.from_numpy(x)).detach().numpy()})
            assert model_diagnosis(findings).fault.endswith(fault) and findings.equal == (not fault), str(findings)


def test_a_sample_of_several_inputs(tmp_path: Path) -> None:
    """By the names of the model's inputs, or in their order under other names."""
    ready(".keras")
    import keras

    keras.utils.set_random_seed(0)
    layers = keras.layers
    tokens, numbers = keras.Input((6,), dtype="int32", name="tokens"), keras.Input((6, 3), name="numbers")
    both = layers.Concatenate()([layers.Embedding(20, 4)(tokens), numbers])
    model = keras.Model([tokens, numbers], layers.Dense(3)(layers.GRU(5)(both)))
    model.save(tmp_path / "m.keras")
    random = np.random.default_rng(0)
    inputs = [random.integers(0, 20, (4, 6)), random.normal(size=(4, 6, 3)).astype(np.float32)]
    y = np.asarray(model(inputs))
    soft = np.exp(y) / np.exp(y).sum(axis=-1, keepdims=True)
    for names, output, fault in (
        (("tokens", "numbers"), y, ""),
        (("numbers", "tokens"), y, ""),
        (("a", "b"), y, ""),
        (("tokens", "numbers"), soft, "softmax at the end"),
    ):
        recorded = {
            name: inputs[("tokens", "numbers").index(name) if name in ("tokens", "numbers") else number]
            for number, name in enumerate(names)
        }
        findings = rc.diagnose(tmp_path / "m.keras", io={**recorded, "y": output})
        assert (model_diagnosis(findings).fault, findings.equal) == (fault, not fault), str(findings)
    with pytest.raises(rc.UsageError, match="takes 'tokens', 'numbers'"):
        rc.diagnose(tmp_path / "m.keras", io={"tokens": inputs[0], "other": inputs[1], "y": y})


def test_directions_that_are_joined_otherwise_are_not_equal(tmp_path: Path) -> None:
    ready(".keras")
    import keras

    files = {}
    for mode in ("sum", "concat", "mul", "ave"):
        keras.utils.set_random_seed(0)
        lstm = keras.layers.LSTM(4, return_sequences=True)
        keras.Sequential([keras.layers.Input((None, 4)), keras.layers.Bidirectional(lstm, mode)]).save(tmp_path / f"{mode}.keras")
        files[mode] = tmp_path / f"{mode}.keras"
    pairs = [(a, b) for a in files for b in files if a != b]
    for a, b in random.Random(drawn.SEED).sample(pairs, 3):
        findings = rc.diagnose(files[a], files[b])
        assert findings.verdict.exit_code() == rc.diff(files[a], files[b]).verdict.exit_code() == 1, (a, b)
        assert f"{a} in A, {b} in B" in str(findings), str(findings)


@pytest.mark.parametrize("ending, name", [(".xml", "openvino-cpu"), (".tflite", "litert-cpu"), (".h", "c-cc")])
def test_a_written_model_is_run_whole_beside_its_source(ending: str, name: str, tmp_path: Path) -> None:
    ready(".keras")
    need({"openvino-cpu": "openvino", "litert-cpu": "litert", "c-cc": "gcc"}[name], built_in()[name].absent)
    import keras

    def model(activation: str | None) -> Any:
        keras.utils.set_random_seed(0)
        layers = keras.layers
        return keras.Sequential(
            [keras.Input((6, 3)), layers.LSTM(4, return_sequences=True, name="l"), layers.Dense(3, activation, name="d")]
        )

    model("softmax").save(tmp_path / "soft.keras")
    model(None).save(tmp_path / "plain.keras")
    rc.export_model(tmp_path / "plain.keras", tmp_path / f"plain{ending}")
    assert rc.diagnose(tmp_path / "plain.keras", tmp_path / f"plain{ending}").equal
    findings = rc.diagnose(tmp_path / "soft.keras", tmp_path / f"plain{ending}")
    assert model_diagnosis(findings).fault == "softmax at the end" and not findings.equal, str(findings)
