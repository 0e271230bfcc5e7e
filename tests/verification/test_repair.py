"""Advice of reports: every command that a form prints is followed, and the whole files are looked at."""

from __future__ import annotations

import html
import json
import os
import re
import shlex
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

import rnnconvert as rc
from rnnconvert.cli.main import main
from rnnconvert.core.remedies import Command
from rnnconvert.models.readers import model_of
from rnnconvert.reports import findings, github, render
from rnnconvert.reports.sarif import to_sarif
from rnnconvert.reports.text import to_text
from rnnconvert.verification.plan import Plan
from rnnconvert.verification.repair import repair
from tests.helpers.onnx_graphs import in_onnxruntime

pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:::torch"),
    pytest.mark.filterwarnings("ignore:You are using the legacy TorchScript:DeprecationWarning"),
]

State = dict[str, torch.Tensor]


class Tagger(torch.nn.Module):
    """An embedding, an LSTM and a dense layer."""

    def __init__(self) -> None:
        super().__init__()
        self.emb, self.rnn, self.head = torch.nn.Embedding(11, 3), torch.nn.LSTM(3, 4), torch.nn.Linear(4, 2)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.rnn(self.emb(tokens))[0])


def swapped(state: State) -> State:
    """Gates f and g of the recurrent matrix exchanged."""
    i, f, g, o = state["rnn.weight_hh_l0"].chunk(4)
    return {**state, "rnn.weight_hh_l0": torch.cat([i, g, f, o])}


def halved(state: State) -> State:
    """One bias halved."""
    return {**state, "rnn.bias_ih_l0": state["rnn.bias_ih_l0"] / 2}


def written(state: State, path: Path) -> Path:
    """The whole model, in the format of the ending."""
    if path.suffix == ".pt":
        torch.save(state, path)
    elif path.suffix == ".safetensors":
        save_file({name: tensor.contiguous() for name, tensor in state.items()}, path)
    elif path.suffix == ".npz":
        np.savez(path, **{name: tensor.numpy() for name, tensor in state.items()})
    elif path.suffix == ".onnx":
        model = Tagger()
        model.load_state_dict(state)
        torch.onnx.export(model.eval(), (torch.zeros(5, 1, dtype=torch.long),), path, dynamo=False)
    else:
        import keras

        keras.utils.clear_session()  # so that layers have the same names in both files
        layers = [keras.layers.Embedding(11, 3), keras.layers.LSTM(4, return_sequences=True), keras.layers.Dense(2)]
        model = keras.Sequential([keras.Input((5,)), *layers])
        arrays = {name: tensor.numpy() for name, tensor in state.items()}
        layers[0].set_weights([arrays["emb.weight"]])
        bias = arrays["rnn.bias_ih_l0"] + arrays["rnn.bias_hh_l0"]
        layers[1].set_weights([arrays["rnn.weight_ih_l0"].T, arrays["rnn.weight_hh_l0"].T, bias])
        layers[2].set_weights([arrays["head.weight"].T, arrays["head.bias"]])
        model.save(path)
    return path


def printed(document: dict[str, object]) -> dict[str, str]:
    """The command that each form of a report prints, as a reader copies it."""
    page = render(document, ".html")
    junit = ElementTree.fromstring(render(document, ".xml"))
    messages = {
        "terminal": to_text(document, width=80),
        "html": html.unescape(re.sub(r"<[^>]+>", "\n", page[page.index('class="remedy"') :].split("<button")[0])),
        "markdown": render(document, ".md"),
        "annotation": github.of_report(document)[0].replace("%25", "%"),
        "junit": next(case[0].get("message", "") for case in junit.iter("testcase") if case.get("name") == "verdict"),
        "sarif": json.loads(to_sarif(document))["runs"][0]["results"][0]["message"]["text"],
    }
    return {form: re.findall(r"rnnconvert (?:transplant|convert) .*", text)[0] for form, text in messages.items()}


def arrays_of(path: Path) -> dict[str, np.ndarray]:
    return {name: np.asarray(array) for name, array in model_of(path).arrays.items()}


@pytest.mark.parametrize("fault", [swapped, halved])
@pytest.mark.parametrize("ending", [".pt", ".safetensors", ".onnx", ".keras", ".h5"])
def test_every_printed_advice_repairs_a_whole_model(ending: str, fault: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    state = Tagger().state_dict()
    monkeypatch.chdir(tmp_path)
    written(state, Path("a.pt"))
    b, right = written(fault(state), Path(f"b $x'{ending}")), written(state, Path(f"right{ending}"))
    before = b.read_bytes()
    document = rc.verify("a.pt", b, on=["torch-cpu"], cases=["default states"]).document
    commands = printed(document)
    assert set(commands.values()) == {findings.remedy(document)[1]}
    words = shlex.split(commands["html"])
    assert words[0] == "rnnconvert" and "--force" not in words
    result = CliRunner().invoke(main, words[1:])
    assert result.exit_code == 0, result.output
    fixed = Path(words[words.index("--output") + 1])
    assert b.read_bytes() == before
    wanted, repaired = arrays_of(right), arrays_of(fixed)
    assert wanted.keys() == repaired.keys()
    for name, array in wanted.items():
        np.testing.assert_allclose(repaired[name], array, rtol=0, atol=1e-7, err_msg=name)
    assert all(np.array_equal(array, repaired[name]) for name, array in arrays_of(b).items() if "emb" in name or "head" in name)
    if ending == ".onnx":
        runs = [in_onnxruntime(path, np.array([[1], [2], [3], [4], [10]])) for path in (right, fixed)]
        assert np.abs(runs[0][0] - runs[1][0]).max() < 1e-6
    assert rc.verify("a.pt", fixed, on=["torch-cpu"], cases=["default states"]).verdict == "equal"


def test_a_file_that_no_command_can_repair_gets_none(tmp_path: Path) -> None:
    torch.manual_seed(0)
    state = Tagger().state_dict()
    a, b = written(state, tmp_path / "a.pt"), written(swapped(state), tmp_path / "b.npz")
    advice = repair(str(a), str(b), Plan())
    assert not advice.command and "unknown ending" in advice.why and str(tmp_path) not in advice.why


@given(st.lists(st.text("ab -$'\"`\\!*;&|()#~%é", min_size=1), min_size=1, max_size=3))
def test_names_of_files_are_quoted_for_a_shell(names: list[str]) -> None:
    words = shlex.split(Command("convert", *names).flags)[2:]
    assert [os.path.normpath(word) for word in words] == [os.path.normpath(name) for name in names]
    assert not any(word.startswith("-") for word in words)
