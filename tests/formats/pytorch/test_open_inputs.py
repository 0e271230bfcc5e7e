"""Programs of TorchScript: inputs that are lists and dictionaries, lengths that no file states, and parts that a step changes in place."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.cli.values import counts
from tests.helpers.onnx_graphs import in_onnxruntime
from tests.helpers.requirements import needed

torch = needed("torch", "torch")
needed("onnxruntime", "onnxruntime")
nn = torch.nn
pytestmark = pytest.mark.filterwarnings("ignore:::")  # torch warns of traces, and of what it calls old


class _Stateful(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(4, 6, batch_first=True), nn.Linear(6, 2)


class _OfList(_Stateful):
    def forward(self, x: torch.Tensor, state: list[torch.Tensor]) -> tuple[torch.Tensor, list[torch.Tensor]]:
        y, (h, c) = self.lstm(x, (state[0], state[1]))
        return self.head(y), [h, c]


class _OfDictionary(_Stateful):
    def forward(self, values: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        y, (h, c) = self.lstm(values["observed"], (values["hidden"], values["cell"]))
        return self.head(y), h, c


class _Stacked(_Stateful):
    """Reads a list as a whole, so that nothing shows how many items it has."""

    def forward(self, x: torch.Tensor, states: list[torch.Tensor]) -> torch.Tensor:
        stacked = torch.stack(states)
        return self.head(self.lstm(x, (stacked[0], stacked[1]))[0])


class _Steps(nn.Module):
    """Calls a layer step by step, at places that it writes as lists."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(4, 6)

    def forward(self, x: torch.Tensor, h: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        outputs = []
        for step in range(x.shape[0]):
            output, (h, c) = self.rnn(x[[step]], (h, c))
            outputs.append(output)
        return torch.stack(outputs).squeeze(1)


class _InPlace(nn.Module):
    """A cell as torch.jit.trace wrote an LSTMCell before there was an operator for it: gates are changed in place."""

    def __init__(self) -> None:
        super().__init__()
        self.x, self.h = nn.Linear(4, 24), nn.Linear(6, 24)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h, c = torch.zeros(x.size(0), 6), torch.zeros(x.size(0), 6)
        outputs = torch.jit.annotate(list[torch.Tensor], [])
        for step in range(x.size(1)):
            i, f, g, o = (self.h(h) + self.x(x[:, step])).chunk(4, 1)
            c = (f.sigmoid_() * c).add_(i.sigmoid_() * g.tanh_())
            h = o.sigmoid_() * torch.tanh(c)
            outputs.append(h)
        return torch.stack(outputs, 1)


class _StateInPlace(_InPlace):
    """Changes a part of its state, which the step before has given out, in place."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.zeros(x.size(0), 6)
        outputs = torch.jit.annotate(list[torch.Tensor], [])
        for step in range(x.size(1)):
            first, _ = h.chunk(2, 1)
            first.sigmoid_()
            h = torch.tanh(self.h(h)[:, :6] + self.x(x[:, step])[:, :6])
            outputs.append(h)
        return torch.stack(outputs, 1)


class _Paths(nn.Module):
    """A dual-path block for one size."""

    def __init__(self) -> None:
        super().__init__()
        self.within, self.across, self.norm = nn.GRU(6, 6, batch_first=True), nn.GRU(6, 6, batch_first=True), nn.LayerNorm([4, 6])

    def forward(self, x: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x.permute(0, 2, 3, 1)
        y = y + self.norm(self.within(y.reshape(5, 4, 6))[0].reshape(1, 5, 4, 6))
        z, state = self.across(y.permute(0, 2, 1, 3).reshape(4, 5, 6), state)
        return z.reshape(1, 4, 5, 6).permute(0, 3, 2, 1), state


_STATES = torch.zeros(1, 2, 6), torch.zeros(1, 2, 6)
_X = torch.zeros(2, 3, 4)


@pytest.mark.parametrize("way", ["script", "trace"])
@pytest.mark.parametrize("kind", [_OfList, _OfDictionary])
def test_items_of_lists_and_dictionaries_are_inputs(kind: Any, way: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = kind().eval()
    if way == "script":
        program = torch.jit.script(module)
    else:
        of_list, of_keys = (_X, list(_STATES)), ({"observed": _X, "hidden": _STATES[0], "cell": _STATES[1]},)
        program = torch.jit.trace(module, of_list if kind is _OfList else of_keys, strict=False)
    program.save(str(tmp_path / "m.pt"))
    done = rc.export_model(tmp_path / "m.pt", tmp_path / "m.onnx", verify=True)
    assert done.equal
    names = ["x", "state_0", "state_1"] if kind is _OfList else ["values_cell", "values_hidden", "values_observed"]
    assert [line.split()[0] for line in done.inputs] == names


def test_a_list_that_is_read_as_a_whole_is_refused(tmp_path: Path) -> None:
    torch.jit.script(_Stacked().eval()).save(str(tmp_path / "m.pt"))
    with pytest.raises(rc.RefusedError, match="list or dictionary of inputs as a whole"):
        rc.export_model(tmp_path / "m.pt", tmp_path / "m.onnx")


def test_a_step_at_a_place_in_a_list(tmp_path: Path) -> None:
    torch.manual_seed(0)
    torch.jit.script(_Steps().eval()).save(str(tmp_path / "m.pt"))
    done = rc.export_model(tmp_path / "m.pt", tmp_path / "m.onnx", verify=True)
    assert done.equal
    assert done.layers[0] == "loop (Scan)"


def test_lengths_that_a_trace_does_not_state(tmp_path: Path) -> None:
    torch.manual_seed(0)
    x, state = torch.randn(1, 6, 5, 4), torch.zeros(1, 4, 6)
    source = tmp_path / "m.pt"
    torch.jit.trace(_Paths().eval(), (x, state)).save(str(source))
    with pytest.raises(rc.RefusedError, match=r"open lengths of its inputs: --axes '\?x\?x\?x\?,\?x\?x\?', with"):
        rc.export_model(source, tmp_path / "m.onnx")
    done = rc.export_model(source, tmp_path / "m.onnx", axes=[(1, 6, 5, 4), (1, 4, 6)], verify=True)
    assert done.equal
    assert done.inputs == ("x (1, 6, 5, 4)", "state (1, 4, 6)")
    with pytest.raises(rc.UsageError, match="states 3 entries for 2 inputs whose"):
        rc.export_model(source, tmp_path / "n.onnx", axes=[(1, 6, 5, 4), (1, 4, 6), 3])
    with pytest.raises(rc.UsageError, match="got 1x0x3, 2"):
        rc.export_model(source, tmp_path / "n.onnx", axes=[(1, 0, 3), 2])


class _Attending(nn.Module):
    """A step of a decoder that attends to a sequence as its state tells it to."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.attention, self.cell = nn.Embedding(9, 3), nn.Linear(9, 4), nn.GRUCell(7, 5)

    def forward(self, token: torch.Tensor, state: torch.Tensor, sequence: torch.Tensor) -> torch.Tensor:
        states = state.unsqueeze(0).expand(sequence.size(0), -1, -1)
        energy = torch.tanh(self.attention(torch.cat([states, sequence], 2)))
        context = torch.softmax(energy.sum(2, keepdim=True), 0) * sequence
        return self.cell(torch.cat([self.tokens(token), context.sum(0)], 1), state)


def test_the_lengths_that_a_refusal_asks_for_are_typed_as_it_shows_them(tmp_path: Path) -> None:
    """Of an input with one axis, too."""
    torch.manual_seed(0)
    source, lengths = tmp_path / "m.pt", iter([2, 2, 5, 6, 2, 4])
    torch.jit.trace(_Attending().eval(), (torch.tensor([1, 2]), torch.zeros(2, 5), torch.randn(6, 2, 4))).save(str(source))
    with pytest.raises(rc.RefusedError) as refused:
        rc.export_model(source, tmp_path / "m.onnx", axes=[1, 2, 3])
    proposal = re.search("--axes '(.*)', with numbers", str(refused.value))
    assert proposal is not None
    typed = re.sub(r"\?", lambda _: str(next(lengths)), proposal[1])
    assert counts(typed, "--axes") == [[2], [2, 5], [6, 2, 4]]
    assert rc.export_model(source, tmp_path / "m.onnx", axes=counts(typed, "--axes"), verify=True).equal
    assert counts("3,?x", "--axes") == [3, [None]]
    for wrong in ("x", "2xx", "?", "2x3x"):
        with pytest.raises(click.BadParameter):
            counts(wrong, "--axes")


def test_lengths_of_axes_that_a_file_leaves_open(tmp_path: Path) -> None:
    torch.manual_seed(0)
    torch.onnx.export(
        _OfDictionary().eval().lstm,
        (_X,),
        str(tmp_path / "m.onnx"),
        input_names=["x"],
        dynamic_axes={"x": {0: "batch", 1: "time"}},
        dynamo=False,
    )
    done = rc.export_model(tmp_path / "m.onnx", tmp_path / "fixed.onnx", axes=[(1, None, 4)], verify=True)
    assert done.equal
    assert done.inputs == ("x (1, time, 4)",)
    with pytest.raises(rc.UsageError, match="whose are batchxtimex4"):
        rc.export_model(tmp_path / "m.onnx", tmp_path / "n.onnx", axes=[(1, None, 5)])
    with pytest.raises(rc.UsageError, match="decides nothing"):
        rc.export_model(tmp_path / "m.onnx", tmp_path / "n.onnx", axes=3)


def test_parts_that_a_step_changes_in_place(tmp_path: Path) -> None:
    torch.manual_seed(0)
    torch.jit.script(_InPlace().eval()).save(str(tmp_path / "m.pt"))
    assert rc.export_model(tmp_path / "m.pt", tmp_path / "m.onnx", verify=True).equal
    torch.jit.script(_StateInPlace().eval()).save(str(tmp_path / "state.pt"))
    with pytest.raises(rc.RefusedError, match="in place"):
        rc.export_model(tmp_path / "state.pt", tmp_path / "n.onnx")


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_a_scripted_layer_itself_is_called_with_a_tensor(kind: str, tmp_path: Path) -> None:
    """Its code has two functions, for a tensor and for packed steps, and none of the name that torch calls."""
    layer = getattr(nn, kind)(3, 5, 2, bidirectional=kind == "GRU", batch_first=kind == "GRU").eval()
    torch.jit.save(torch.jit.script(layer), tmp_path / "layer.pt")
    done = rc.export_model(tmp_path / "layer.pt", tmp_path / "layer.onnx", verify=True)
    assert done.proof and all(done.proof)
    x = torch.randn(4, 6, 3)
    y, states = layer(x)
    expected = [y, *states] if kind == "LSTM" else [y, states]
    for value, wanted in zip(in_onnxruntime(tmp_path / "layer.onnx", x.numpy()), expected, strict=True):
        np.testing.assert_allclose(value, wanted.detach(), atol=1e-6)


class _Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.lstm, self.tags = nn.Embedding(9, 6), nn.LSTM(6, 4), nn.Linear(4, 3)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        y, _ = self.lstm(self.words(text).view(len(text), 1, -1))
        return self.tags(y.view(len(text), -1))


def test_an_axis_that_can_only_have_the_length_one_is_none(tmp_path: Path) -> None:
    """A text is a row of words, and no table of one column; a trace keeps the length of the text that it was made with."""
    module, text = _Tagger().eval(), torch.tensor([3, 1, 4, 1, 5])
    torch.jit.script(module).save(tmp_path / "script.pt")
    torch.jit.trace(module, text).save(tmp_path / "trace.pt")
    with pytest.raises(rc.RefusedError, match=r"They may have 1, .* State it with --axes, as 1\."):
        rc.export_model(tmp_path / "trace.pt", tmp_path / "trace.onnx")
    for name, axes, texts in (("script", None, [text, text[:2]]), ("trace", 1, [text])):
        rc.export_model(tmp_path / f"{name}.pt", tmp_path / f"{name}.onnx", axes=axes)
        for words in texts:
            (output,) = in_onnxruntime(tmp_path / f"{name}.onnx", words.numpy())
            with torch.no_grad():
                np.testing.assert_allclose(output, module(words).numpy(), rtol=1e-5, atol=1e-6)
