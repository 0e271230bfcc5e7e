"""map as its user meets it: three architectures, its advice followed to the letter, the filled models run."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from rnnconvert.core.arrays import Array
from rnnconvert.models import mapping
from tests.helpers.commands import call
from tests.helpers.judging import close
from tests.helpers.requirements import needed

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


def advice_followed(path: Path, chosen: dict[str, str]) -> None:
    """Edit a mapping as its own comments say: remove the # of a line, and write another source where one is meant."""
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines():
        name = re.match(r'  # (?:- )?([\w.\[\]]+|".*?")(?::|  #|$)', line)
        if name and name[1] in chosen:
            line = line.replace("  # ", "  ", 1)
            if chosen[name[1]]:
                line = re.sub(r": \S+", f": {chosen[name[1]]}", line)
        lines.append(line)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def tagger(folder: Path) -> tuple[Path, Path, Array, Callable[[Path], Array]]:
    """A Keras tagger and its likeness in torch, which has a parameter that the source lacks."""
    import keras
    import torch

    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [keras.Input((None,)), keras.layers.Embedding(50, 16, name="words"),
         keras.layers.Bidirectional(keras.layers.LSTM(8, return_sequences=True), name="enc"), keras.layers.Dense(5, name="tags")]
    )  # fmt: skip
    for weight in model.weights:
        weight.assign(np.random.default_rng(weight.shape[0]).normal(0, 0.3, weight.shape))
    model.save(folder / "source.keras")

    class Mine(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = torch.nn.Embedding(50, 16)
            self.lstm = torch.nn.LSTM(16, 8, bidirectional=True, batch_first=True)
            self.out = torch.nn.Linear(16, 5)
            self.transitions = torch.nn.Parameter(torch.zeros(5, 5))

        def forward(self, x: Any) -> Any:
            return self.out(self.lstm(self.embed(x))[0])

    torch.save(Mine().state_dict(), folder / "mine.pt")
    x = np.array([[1, 2, 3, 4], [9, 8, 7, 6]])

    def run(path: Path) -> Array:
        mine = Mine()
        mine.load_state_dict(torch.load(path, weights_only=True))
        with torch.no_grad():
            return np.asarray(mine(torch.from_numpy(x)))

    return folder / "source.keras", folder / "mine.pt", np.asarray(model(x)), run


def two_alike(folder: Path) -> tuple[Path, Path, Array, Callable[[Path], Array]]:
    """Two GRUs of one size in torch, into Keras: nothing in the names says which is which."""
    import keras
    import torch

    torch.manual_seed(2)
    parts = {"left": torch.nn.GRU(6, 6, batch_first=True), "right": torch.nn.GRU(6, 6, batch_first=True), "head": torch.nn.Linear(6, 2)}
    torch.save(torch.nn.ModuleDict(parts).state_dict(), folder / "source.pt")
    x = np.random.default_rng(0).normal(size=(2, 5, 6)).astype(np.float32)
    with torch.no_grad():  # the right one comes first
        y = np.asarray(parts["head"](parts["left"](parts["right"](torch.from_numpy(x))[0])[0]))
    model = keras.Sequential(
        [keras.Input((None, 6)), keras.layers.GRU(6, return_sequences=True, name="one"),
         keras.layers.GRU(6, return_sequences=True, name="two"), keras.layers.Dense(2, name="head")]
    )  # fmt: skip
    model.save(folder / "mine.keras")
    return folder / "source.pt", folder / "mine.keras", y, lambda path: np.asarray(keras.models.load_model(path)(x))


def exported(folder: Path) -> tuple[Path, Path, Array, Callable[[Path], Array]]:
    """A torch model as an exporter wrote it in ONNX, back into torch."""
    import torch

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.emb = torch.nn.Embedding(30, 8)
            self.rnn = torch.nn.LSTM(8, 8, num_layers=2, batch_first=True)
            self.norm = torch.nn.LayerNorm(8)
            self.fc = torch.nn.Linear(8, 3)

        def forward(self, x: Any) -> Any:
            return self.fc(self.norm(self.rnn(self.emb(x))[0]))

    torch.manual_seed(3)
    model, x = Model().eval(), torch.arange(8).reshape(2, 4)
    with torch.no_grad():
        y = np.asarray(model(x))
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(model, (x,), folder / "source.onnx", dynamo=False, input_names=["x"], opset_version=17)
    torch.save(Model().state_dict(), folder / "mine.pt")

    def run(path: Path) -> Array:
        filled = Model()
        filled.load_state_dict(torch.load(path, weights_only=True))
        with torch.no_grad():
            return np.asarray(filled(x))

    return folder / "source.onnx", folder / "mine.pt", y, run


CASES: list[tuple[Any, dict[str, str], tuple[str, ...]]] = [
    (tagger, {"transitions": ""}, ()),
    (two_alike, {"one": "right", "two": "left"}, ()),
    (exported, {}, ()),
]


@pytest.mark.parametrize(("make", "chosen", "more"), CASES, ids=[row[0].__name__ for row in CASES])
def test_a_mapping_is_valid_after_its_advice_and_fills_the_model(
    make: Any, chosen: dict[str, str], more: tuple[str, ...], tmp_path: Path
) -> None:
    needed("torch", "torch")
    needed("keras", "keras")
    source, target, expected, run = make(tmp_path)
    path, filled = tmp_path / "mapping.yaml", tmp_path / f"filled{target.suffix}"
    assert call("map", source, target, "-o", path).exit_code == 0
    proposed = path.read_text(encoding="utf-8")
    assert "chosen by a person" not in proposed  # nobody did
    advice_followed(path, chosen)
    mapping.read(path)
    done = call("transplant", source, "--into", target, "-o", filled, "--mapping", path, *more)
    assert done.exit_code == 0, done.output
    assert close(run(filled), expected)
    assert call("map", source, target, "-o", path, "--force").exit_code == 0
    again = path.read_text(encoding="utf-8")
    assert again.count("chosen by a person") == sum(map(bool, chosen.values()))
    assert call("map", source, target, "-o", path).exit_code == 0  # it is up to date
    assert path.read_text(encoding="utf-8") == again
    assert close_pairs(proposed) <= close_pairs(again)


def close_pairs(text: str) -> set[str]:
    """The lines of a mapping that pair layers, with their evidence."""
    return {re.sub(r" +", " ", line) for line in text.splitlines() if re.match(r'  [\w"]', line)}


def two(*names: str) -> dict[str, Array]:
    arrays: dict[str, Array] = {}
    for seed, name in enumerate(names):
        numbers = np.random.default_rng(seed)
        shapes = {"weight_ih_l0": (15, 5), "weight_hh_l0": (15, 5), "bias_ih_l0": (15,), "bias_hh_l0": (15,)}
        arrays |= {f"{name}.{local}": numbers.normal(size=shape).astype(np.float32) for local, shape in shapes.items()}
    return arrays


def test_what_follows_from_a_choice_is_nobodys_choice(tmp_path: Path) -> None:
    save_file(two("encode", "decode"), tmp_path / "source.safetensors")
    save_file(two("first", "second"), tmp_path / "target.safetensors")
    path = tmp_path / "mapping.yaml"
    words = ("map", tmp_path / "source.safetensors", tmp_path / "target.safetensors", "-o", path)
    assert call(*words).exit_code == 0
    advice_followed(path, {"first": "encode"})
    for _ in range(3):
        assert call(*words, "--force").exit_code == 0
        text = path.read_text(encoding="utf-8")
        assert re.search(r"first: encode +# recurrent: chosen by a person", text)
        assert re.search(r"second: decode +# recurrent: the only recurrent layer of these sizes left", text)
    # The evidence of a line that somebody changed by hand is not believed.
    path.write_text(text.replace("second: decode", "second: encode").replace("first: encode", "first: decode"), encoding="utf-8")
    assert call(*words, "--force").exit_code == 0
    text = path.read_text(encoding="utf-8")
    assert re.search(r"first: decode +# recurrent: chosen by a person", text)
    assert re.search(r"second: encode +# recurrent: the only recurrent layer of these sizes left", text)


def test_all_lines_at_once_fill_in_order(tmp_path: Path) -> None:
    save_file(two("encode", "decode"), tmp_path / "source.safetensors")
    save_file(two("first", "second"), tmp_path / "target.safetensors")
    path = tmp_path / "mapping.yaml"
    assert call("map", tmp_path / "source.safetensors", tmp_path / "target.safetensors", "-o", path).exit_code == 0
    path.write_text(re.sub(r"^  # (first|second)", r"  \1", path.read_text(encoding="utf-8"), flags=re.M), encoding="utf-8")
    assert mapping.read(path).layers == {"first": "decode", "second": "encode"}  # in the files' order, which is the alphabet's


def test_counterparts_that_are_taken_are_said_to_be(tmp_path: Path) -> None:
    save_file(two("only"), tmp_path / "source.safetensors")
    save_file(two("only", "more"), tmp_path / "target.safetensors")
    text = call("map", tmp_path / "source.safetensors", tmp_path / "target.safetensors").stdout
    assert "only: only" in text and "Nothing in the source fits" not in text
    assert "What fits these layers of the target in the source is taken by others." in text and "  # - more  # recurrent" in text


def test_the_same_for_machines(tmp_path: Path) -> None:
    import json

    save_file(two("encode", "decode"), tmp_path / "source.safetensors")
    save_file(two("first", "second") | {"head.weight": np.ones((2, 5), np.float32)}, tmp_path / "target.safetensors")
    path = tmp_path / "mapping.yaml"
    result = call("map", tmp_path / "source.safetensors", tmp_path / "target.safetensors", "-o", path, "--json")
    assert result.exit_code == 0 and result.stderr == "" and path.is_file()
    document = json.loads(result.stdout)
    assert document["ambiguous"] == [{"targets": ["first", "second"], "sources": ["decode", "encode"], "kind": "recurrent"}]
    assert document["layers"] == [] and document["without_counterpart"] == ["head"] and document["unused"] == []
