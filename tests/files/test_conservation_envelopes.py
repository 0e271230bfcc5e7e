"""Checkpoints of training scripts: what stands beside the weights is kept, with its nesting, or the write is refused."""

from __future__ import annotations

import argparse
import random
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import rnnconvert as rc
from rnnconvert.core.errors import RefusedError, RnnConvertError, UsageError
from rnnconvert.files.load import load
from rnnconvert.models.load import transplant_file
from rnnconvert.models.others import others
from tests.helpers import drawn

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning", "ignore:.*torch.jit.*:FutureWarning")


class Model(nn.Module):
    """A language model with tied matrices, if asked."""

    def __init__(self, tied: bool = False) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 4)
        self.rnn = nn.LSTM(4, 4, num_layers=2)
        self.head = nn.Linear(4, 7)
        if tied:
            self.head.weight = self.embed.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.head(self.rnn(self.embed(x))[0])
        return y


def trained(model: Model) -> torch.optim.Optimizer:
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(3, 2, dtype=torch.long)).sum().backward()
    optimizer.step()
    return optimizer


def envelope(kind: str, model: Model) -> dict[str, Any]:
    if kind == "lightning":
        return {
            "epoch": 7, "state_dict": model.state_dict(), "optimizer_states": [trained(model).state_dict()],
            "pytorch-lightning_version": "2.1", "hyper_parameters": {"lr": 0.1},
        }  # fmt: skip
    settings = {"args": argparse.Namespace(lr=0.1)} if kind == "object" else {"args": {"lr": 0.1, "sizes": [4, 4]}}
    return {"model": model.state_dict(), "optimizer": trained(model).state_dict(), "epoch": 7, **settings}


KINDS = ["script", "lightning", "object"]


def same(first: Any, second: Any) -> bool:
    """Return whether two values of a checkpoint are the same data."""
    if isinstance(first, torch.Tensor):
        return isinstance(second, torch.Tensor) and first.dtype == second.dtype and torch.equal(first, second)
    if isinstance(first, dict):
        return isinstance(second, dict) and list(first) == list(second) and all(same(first[key], second[key]) for key in first)
    if isinstance(first, list | tuple):
        return type(first) is type(second) and len(first) == len(second) and all(map(same, first, second))
    return bool(first == second)


def saved(value: Any, path: Path, legacy: bool = False, protocol: int = 2) -> Path:
    torch.save(value, path, pickle_protocol=protocol, _use_new_zipfile_serialization=not legacy)
    return path


KEYS = ["state_dict", "model_state_dict", "module", "_orig_mod", "model", "net", "weights", "ema", "0", "rnn"]


def drawn_envelope(draw: random.Random, modules: list[nn.Module], depth: int = 0) -> dict[str, Any]:
    """State dictionaries under drawn keys, in and beside one another; `modules` gets what is in them."""
    content: dict[str, Any] = {}
    if depth and draw.random() < 0.7:
        modules.append(nn.GRU(3, 4))
        start = draw.choice(["", "", "0.", "rnn.", "module.", "module.0.", "_orig_mod."])
        content |= {start + name: tensor for name, tensor in modules[-1].state_dict().items()}
    for key in draw.sample(KEYS, draw.randint(1, 3)) if depth < 3 else ():
        if not any(name.startswith(f"{key}.") for name in content):
            content[key] = drawn_envelope(draw, modules, depth + 1)
    return content


@pytest.mark.parametrize("legacy", [False, True])
def test_every_module_of_an_envelope_is_a_layer(tmp_path: Path, legacy: bool) -> None:
    for number in range(30):
        draw, modules = random.Random(f"{drawn.SEED} {number}"), list[nn.Module]()
        value = drawn_envelope(draw, modules)
        path = saved(value, tmp_path / "m.pt", legacy, draw.randint(2 - legacy, 5))
        if not modules:
            continue
        matrices = [np.asarray(layer.first.get("input", "n")) for layer in load(path).layers.values()]
        expected = [module.weight_ih_l0.detach().numpy()[8:] for module in modules]
        assert len(matrices) == len(expected), (number, value)
        assert all(any(np.array_equal(matrix, other) for other in matrices) for matrix in expected), (number, value)
        for ending in ("pt", "safetensors"):
            rc.convert(path, tmp_path / f"out.{ending}", force=True)
            again = [np.asarray(layer.first.get("input", "n")) for layer in load(tmp_path / f"out.{ending}").layers.values()]
            assert len(again) == len(expected) and all(any(np.array_equal(a, b) for b in again) for a in expected), (number, value)


NEIGHBOURS = [
    ({"net": Model, "ema": Model}, {f"{nest}.{name}" for nest in ("net", "ema") for name in ("rnn", "head", "embed")}),
    ({"model": Model, "head": lambda: nn.Linear(2, 2)}, {"model.rnn", "model.head", "model.embed", "head"}),
    ({"model": Model, "loss": lambda: nn.Linear(2, 2)}, {"rnn", "head", "embed", "loss"}),
    (
        {"state_dict": Model, "ema_state_dict": Model},
        {f"{nest}.{name}" for nest in ("state_dict", "ema_state_dict") for name in ("rnn", "head", "embed")},
    ),
]


@pytest.mark.parametrize(("modules", "names"), NEIGHBOURS)
def test_a_layer_and_its_neighbours_have_the_same_prefix(
    modules: dict[str, Callable[[], nn.Module]], names: set[str], tmp_path: Path
) -> None:
    path = saved({key: module().state_dict() for key, module in modules.items()}, tmp_path / "m.pt", False)
    checkpoint = load(path)
    listed = {*checkpoint.layers, *(other.name for other in others(checkpoint))}
    assert listed == names


@pytest.mark.parametrize("protocol", range(1, 6))
def test_files_before_1_6_of_every_pickle_protocol(tmp_path: Path, protocol: int) -> None:
    model = Model()
    path = saved(model.state_dict(), tmp_path / "m.pt", True, protocol)
    assert torch.equal(torch.load(path, weights_only=False)["head.bias"], model.head.bias)
    (stack,) = load(path).layers.values()
    assert np.array_equal(np.asarray(stack.first.get("input", "i")), model.rnn.weight_ih_l0.detach().numpy()[:4])


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_conversion_in_place_keeps_everything(tmp_path: Path, kind: str, legacy: bool) -> None:
    path = saved(envelope(kind, Model()), tmp_path / "lm.pt", legacy)
    before = torch.load(path, weights_only=False)
    summary = rc.convert(path, path, force=True)
    assert same(torch.load(path, weights_only=False), before)
    assert any("kept unchanged" in note for note in summary.notes)


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_transplant_changes_the_weights_alone(tmp_path: Path, kind: str, legacy: bool) -> None:
    path = saved(envelope(kind, Model()), tmp_path / "lm.pt", legacy)
    source = Model()
    saved(source.state_dict(), tmp_path / "new.pt")
    report = transplant_file(tmp_path / "new.pt", path, tmp_path / "out.pt")
    before, after = (torch.load(file, weights_only=False) for file in (path, tmp_path / "out.pt"))
    name = "state_dict" if kind == "lightning" else "model"
    assert same(dict(after[name]), dict(source.state_dict()))
    assert same({**after, name: 0}, {**before, name: 0})
    assert any("make a new optimizer" in note for note in report.notes)
    if not legacy:
        with zipfile.ZipFile(tmp_path / "out.pt") as archive:
            assert archive.testzip() is None


def test_a_transplant_into_a_whole_pickled_module_and_a_script(tmp_path: Path) -> None:
    source = Model()
    saved(source.state_dict(), tmp_path / "new.pt")
    torch.jit.script(Model()).save(str(tmp_path / "script.pt"))
    transplant_file(tmp_path / "new.pt", tmp_path / "script.pt", tmp_path / "out.pt")
    x = torch.ones(3, 2, dtype=torch.long)
    assert torch.equal(torch.jit.load(tmp_path / "out.pt")(x), source(x))
    saved(Model(), tmp_path / "module.pt")
    transplant_file(tmp_path / "new.pt", tmp_path / "module.pt", tmp_path / "whole.pt")
    assert torch.equal(torch.load(tmp_path / "whole.pt", weights_only=False)(x), source(x))


def test_tied_weights_of_a_file_get_one_set_of_numbers(tmp_path: Path) -> None:
    saved({"model": Model(tied=True).state_dict(), "epoch": 7}, tmp_path / "tied.pt")
    saved(Model(tied=True).state_dict(), tmp_path / "alike.pt")
    saved(Model().state_dict(), tmp_path / "unlike.pt")
    transplant_file(tmp_path / "alike.pt", tmp_path / "tied.pt", tmp_path / "out.pt")
    arrays = torch.load(tmp_path / "out.pt")["model"]
    assert torch.equal(arrays["embed.weight"], torch.load(tmp_path / "alike.pt")["head.weight"])
    assert arrays["embed.weight"].data_ptr() == arrays["head.weight"].data_ptr()
    with pytest.raises(RnnConvertError, match="one array in the target"):
        transplant_file(tmp_path / "unlike.pt", tmp_path / "tied.pt", tmp_path / "not.pt")
    assert not (tmp_path / "not.pt").exists()


def test_another_view_of_the_same_numbers_is_not_changed_in_silence(tmp_path: Path) -> None:
    both = torch.randn(2, 16, 4)
    layer = nn.LSTM(4, 4).state_dict()
    layer["weight_ih_l0"] = both[0]
    saved({"model": layer, "copy": both, "epoch": 7}, tmp_path / "views.pt")
    saved(nn.LSTM(4, 4).state_dict(), tmp_path / "new.pt")
    with pytest.raises(UsageError, match="shares its numbers"):
        transplant_file(tmp_path / "new.pt", tmp_path / "views.pt", tmp_path / "out.pt", strict=False)


def test_what_an_envelope_cannot_hold_is_refused(tmp_path: Path) -> None:
    path = saved(envelope("script", Model()), tmp_path / "lm.pt")
    before = path.read_bytes()
    wishes: list[dict[str, Any]] = [{"dtype": "float16"}, {"stack": "split"}, {"module": "cell"}]
    for wish in wishes:
        with pytest.raises(RefusedError, match="change their form"):
            rc.convert(path, path, force=True, **wish)
    assert path.read_bytes() == before
    rc.convert(path, tmp_path / "alone.pt", layers=["rnn"], dtype="float16")
    assert all(tensor.dtype == torch.float16 for tensor in torch.load(tmp_path / "alone.pt").values())


def test_what_holds_tensors_alone_says_what_is_left_out(tmp_path: Path) -> None:
    path = saved(envelope("script", Model()), tmp_path / "lm.pt")
    notes = rc.convert(path, tmp_path / "lm.safetensors").notes
    assert any("epoch" in note and "args" in note for note in notes)
    torch.jit.script(Model()).save(str(tmp_path / "script.pt"))
    notes = rc.convert(tmp_path / "script.pt", tmp_path / "weights.pt").notes
    assert any("code or class" in note for note in notes)


@pytest.mark.parametrize("key", ["model", "net", "weights", "state_dict", "params"])
def test_a_nested_state_dictionary_is_named_and_warned_of_as_a_bare_one(tmp_path: Path, key: str) -> None:
    class Headed(nn.LSTM):
        """A layer at the top, with something beside it."""

        def __init__(self) -> None:
            super().__init__(4, 4)
            self.head = nn.Linear(4, 2)

    saved({key: Headed().state_dict()}, tmp_path / "own.pt")
    checkpoint = load(tmp_path / "own.pt")
    assert list(checkpoint.layers) == [""]
    assert not checkpoint.warnings
    saved({key: Model().state_dict(), "epoch": 1}, tmp_path / "whole.pt")
    assert list(load(tmp_path / "whole.pt").layers) == ["rnn"]


def test_a_module_of_the_model_that_is_called_model_keeps_its_name(tmp_path: Path) -> None:
    saved({f"model.{name}": tensor for name, tensor in Model().state_dict().items()}, tmp_path / "flat.pt")
    assert list(load(tmp_path / "flat.pt").layers) == ["model.rnn"]


def test_names_of_compiled_modules(tmp_path: Path) -> None:
    compiled = {f"_orig_mod.{name}": tensor for name, tensor in Model().state_dict().items()}
    part = {name.replace("rnn.", "rnn._orig_mod."): tensor for name, tensor in Model().state_dict().items()}
    for number, names in enumerate((compiled, part)):
        path = saved(names, tmp_path / f"{number}.pt")
        assert list(load(path).layers) == ["rnn"]
        rc.convert(path, tmp_path / f"plain{number}.pt")
        Model().load_state_dict(torch.load(tmp_path / f"plain{number}.pt"))


def test_a_pickled_module_says_which_code_torch_does_not_run(tmp_path: Path) -> None:
    torch.save(Model(), tmp_path / "a.pt")
    text = str(rc.verify(tmp_path / "a.pt", tmp_path / "a.pt"))
    assert f"it would run code, {__name__}.Model)" in " ".join(text.split()) and "\x1b" not in text
