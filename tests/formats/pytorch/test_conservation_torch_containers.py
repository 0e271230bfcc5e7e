"""PyTorch's weights in other containers, packed files, and files of other kinds, which are named for what they are."""

from __future__ import annotations

import gzip
import json
import lzma
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

import rnnconvert as rc
from rnnconvert import transplant_file, verify
from rnnconvert.core import reference
from rnnconvert.core.errors import UnreadableError, UsageError
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.load import load


class Model(nn.Module):
    """A layer with something behind it."""

    def __init__(self, layer: nn.Module | None = None, width: int = 4) -> None:
        super().__init__()
        self.rnn = layer or nn.LSTM(3, 4)
        self.head = nn.Linear(width, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.head(self.rnn(x)[0])
        return y


def agrees(stack: Recurrent, layer: nn.Module) -> bool:
    x = torch.randn(6, 2, 3)
    with torch.no_grad():
        return bool(np.abs(reference.run(stack, x.numpy()).y - layer(x)[0].numpy()).max() < 3e-6)


def only(path: Path) -> Recurrent:
    (stack,) = load(path).layers.values()
    return stack


@pytest.mark.parametrize("order", ["<", ">"])
def test_numpys_archive_with_torchs_names(tmp_path: Path, order: str) -> None:
    model = Model()
    arrays = {name: tensor.numpy().astype(f"{order}f4") for name, tensor in model.state_dict().items()}
    np.savez(tmp_path / "m.npz", **arrays)
    assert agrees(only(tmp_path / "m.npz"), model.rnn)
    rc.convert(tmp_path / "m.npz", tmp_path / "m.pt")
    model.load_state_dict(torch.load(tmp_path / "m.pt"))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("layer", [lambda: nn.LSTM(3, 4, num_layers=2), lambda: nn.RNN(3, 4, nonlinearity="relu"), lambda: nn.GRU(3, 4)])
def test_an_exported_program(tmp_path: Path, layer: Any) -> None:
    model = Model(layer()).eval()
    torch.export.save(torch.export.export(model, (torch.randn(5, 2, 3),)), tmp_path / "m.pt2")
    checkpoint = load(tmp_path / "m.pt2")
    assert not checkpoint.questions
    assert agrees(checkpoint.layers["rnn"], model.rnn)


def test_second_names_of_tied_tensors(tmp_path: Path) -> None:
    class Twice(Model):
        def __init__(self) -> None:
            super().__init__()
            self.again = self.rnn

    model = Twice()
    safetensors.torch.save_model(model, str(tmp_path / "m.safetensors"))
    torch.save(model.state_dict(), tmp_path / "m.pt")
    assert set(load(tmp_path / "m.safetensors").layers) == set(load(tmp_path / "m.pt").layers) == {"rnn", "again"}
    rc.convert(tmp_path / "m.safetensors", tmp_path / "again.safetensors")
    missing = safetensors.torch.load_model(Twice(), tmp_path / "again.safetensors")
    assert not any(missing)


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_a_folder_of_hugging_faces(tmp_path: Path, name: str) -> None:
    model = Model()
    if name.endswith("safetensors"):
        safetensors.torch.save_file(model.state_dict(), tmp_path / name)
    else:
        torch.save(model.state_dict(), tmp_path / name)
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["Model"]}))
    assert agrees(only(tmp_path), model.rnn)


@pytest.mark.parametrize("packer", [gzip, lzma])
def test_a_single_file_inside_another(tmp_path: Path, packer: Any) -> None:
    model = Model()
    torch.save(model.state_dict(), tmp_path / "m.pt")
    packed = tmp_path / ("m.pt.gz" if packer is gzip else "m.pt.xz")
    packed.write_bytes(packer.compress((tmp_path / "m.pt").read_bytes()))
    checkpoint = load(packed)
    assert agrees(checkpoint.layers["rnn"], model.rnn)
    assert str(packed) in checkpoint.evidence[0]
    packed.write_bytes(packed.read_bytes()[:-40])
    with pytest.raises(UnreadableError, match="cannot be unpacked"):
        load(packed)


def test_the_users_own_path_is_shown_and_the_unpacked_file_is_run(tmp_path: Path) -> None:
    model = Model()
    torch.save({"model": model.state_dict(), "epoch": 7}, tmp_path / "m.pt")
    packed = tmp_path / "m.pt.gz"
    packed.write_bytes(gzip.compress((tmp_path / "m.pt").read_bytes()))
    checkpoint = load(packed)
    assert checkpoint.path == str(packed) and Path(checkpoint.file).read_bytes() == (tmp_path / "m.pt").read_bytes()
    summary = rc.convert(packed, tmp_path / "n.pt")
    texts = [repr(checkpoint), summary.source, *checkpoint.evidence, *checkpoint.warnings, *summary.warnings]
    assert summary.source == str(packed)
    assert torch.load(tmp_path / "n.pt", weights_only=True)["epoch"] == 7  # patched from the unpacked file
    with pytest.raises(UsageError) as unused:
        load(packed, settings=["cell_clip=3"])
    with pytest.raises(UsageError) as other:
        rc.convert(packed, tmp_path / "o.onnx", layers=["other"])
    for caught in (unused, other):
        assert str(packed) in str(caught.value)
        texts.append(str(caught.value))
    report = verify(packed, tmp_path / "n.pt", on=["torch-cpu"])
    assert report.equal
    assert report.document["models"][0]["path"] == str(packed)
    assert all(entry["own_file"] for entry in report.document["layers"][0]["runs"])
    filled = transplant_file(packed, tmp_path / "n.pt", tmp_path / "filled.pt")
    texts += [str(report), str(filled)]
    assert not [text for text in texts if checkpoint.file in text]
    assert not [text for text in texts if "/rnnconvert-" in text]


@pytest.mark.parametrize("name", ["m.pt", "m.onnx", "m.h5", "m.safetensors", "m.npz"])
def test_errors_of_what_is_inside_name_the_users_own_path(name: str, tmp_path: Path) -> None:
    heads = {"m.pt": b"PK\x03\x04", "m.onnx": b"\x08\x07\x12", "m.h5": b"\x89HDF\r\n\x1a\n", "m.npz": b"PK\x03\x04"}
    packed = tmp_path / f"{name}.gz"
    packed.write_bytes(gzip.compress(heads.get(name, (100).to_bytes(8, "little") + b"{") + bytes(range(64))))
    with pytest.raises(UnreadableError) as caught:
        load(packed)
    assert caught.value.path == str(packed)
    assert str(packed) in str(caught.value) and "/rnnconvert-" not in str(caught.value)


@pytest.mark.parametrize("packer", [gzip, lzma])
def test_what_unpacks_to_too_much(tmp_path: Path, packer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from rnnconvert.containers import unpacked

    monkeypatch.setattr(unpacked, "UNPACKED_BYTES", 1 << 20)
    path = tmp_path / "bomb.gz"
    path.write_bytes(packer.compress(bytes(8 << 20)))
    with pytest.raises(UnreadableError, match="unpack to more than"):
        load(path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (pickle.dumps({"weight": [1.0, 2.0]}, 0), "a pickle without arrays named"),
        (pickle.dumps({"weight": np.zeros(3)}, 0), "a pickle without arrays named"),
        (json.dumps({"weight": [1.0, 2.0]}).encode(), "JSON"),
        (b"1.0,2.0,3.0\n", "text"),
        (bytes(257) + b"ustar" + bytes(300), "tar archive"),
        (b"7z\xbc\xaf\x27\x1c" + bytes(30), "7z archive"),
    ],
)
def test_files_of_other_kinds_are_named(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(UnreadableError, match=words) as error:
        load(tmp_path / "file")
    assert "with --layout" in str(error.value) or "--layout describes those that are known" in str(error.value)


def test_a_folder_of_another_kind(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing")
    with pytest.raises(UnreadableError, match=r"a folder of another kind \(notes.txt\)"):
        load(tmp_path)
