"""The two files of `rnnconvert demo`: what they are said to be, and the commands that it names end as they should."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import pytest

import rnnconvert as rc
from tests.helpers.commands import call
from tests.helpers.requirements import needed


def test_the_files_are_one_lstm_and_the_mistake_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    document = json.loads(call("demo", "--json").stdout)
    assert document["files"] == [str(Path("rnnconvert-demo") / name) for name in ("model.keras", "wrong.pt")]
    for command, code in zip(document["commands"], (0, 0, 1), strict=True):
        done = call(*shlex.split(command)[1:])
        assert done.exit_code == code, done.output
    assert "gates i and f are swapped in the backward direction only" in done.output
    right, wrong = (next(iter(rc.load(file).layers.values())) for file in document["files"])
    for gate, other in zip(right[0, 0].gates.values(), wrong[0, 0].gates.values(), strict=True):
        assert np.array_equal(gate.recurrent, other.recurrent)
    assert np.array_equal(np.asarray(right[0, 1].arrays["input", "i"]), np.asarray(wrong[0, 1].arrays["input", "f"]))


def test_keras_and_torch_load_them(tmp_path: Path) -> None:
    keras, torch = needed("keras", "keras"), needed("torch", "torch")
    assert call("demo", tmp_path / "new" / "demo").exit_code == 0
    model = keras.models.load_model(tmp_path / "new" / "demo" / "model.keras")
    assert model(np.zeros((2, 5, 6), np.float32)).shape == (2, 5, 16)
    state = torch.load(tmp_path / "new" / "demo" / "wrong.pt", weights_only=True)
    torch.nn.LSTM(6, 8, bidirectional=True).load_state_dict(state)


def test_nothing_is_replaced_unless_that_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "wrong.pt").write_bytes(b"mine")
    done = call("demo", tmp_path)
    assert done.exit_code == 2 and "wrong.pt already exists" in done.output
    assert [path.name for path in tmp_path.iterdir()] == ["wrong.pt"] and (tmp_path / "wrong.pt").read_bytes() == b"mine"
    assert call("demo", tmp_path, "--force").exit_code == 0
    (tmp_path / "file").write_text("")
    assert call("demo", tmp_path / "file").exit_code in (2, 74)
