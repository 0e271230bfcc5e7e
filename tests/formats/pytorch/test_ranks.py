"""Operators of traces on inputs of more or fewer axes than those of the trace: refused, or what torch computes of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rnnconvert as rc
from tests.helpers.drawn import NotComparedError, drawn, each
from tests.helpers.exported import RUNS
from tests.helpers.requirements import needed

torch = needed("torch", "torch")
needed("onnxruntime", "onnxruntime")
pytestmark = pytest.mark.filterwarnings("ignore:::")  # torch warns of traces, and of what it calls old

MATRIX = torch.linspace(-1, 1, 15).reshape(5, 3)
OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "expand": lambda x, y: x.expand(2, -1, 3) + y,
    "expand behind a new axis": lambda x, y: x[:, None].expand(-1, 2, -1, -1)[:, 0] + y,
    "expand_as": lambda x, y: x.expand_as(y),
    "cat": lambda x, y: torch.cat([x, y], -1),
    "stack": lambda x, y: torch.stack([x, y], 1),
    "matmul": lambda x, y: x @ y,
    "matmul of a turned one": lambda x, y: x.transpose(1, 2) @ y,
    "matmul with a turned one": lambda x, y: x @ y.transpose(-1, -2),
    "bmm": lambda x, y: torch.bmm(x, y.transpose(1, 2)),
    "mm": lambda x, y: torch.mm(x[0], y[0].t()),
    "addmm": lambda x, y: torch.addmm(MATRIX[:, 0], x[0], MATRIX.t()) + y.sum(),
    "linear": lambda x, y: torch.nn.functional.linear(x, MATRIX) + y.sum(),
    "unsqueeze": lambda x, y: x.unsqueeze(2) + y.unsqueeze(1),
    "squeeze": lambda x, y: x[:, :, :1].squeeze(2) + y[:, :, 0],
    "permute": lambda x, y: x.permute(0, 2, 1) + y.permute(0, 2, 1),
    "movedim": lambda x, y: x.movedim(2, 0) + y.movedim(2, 0),
    "flip": lambda x, y: x.flip(2) + y,
    "roll": lambda x, y: torch.roll(x, 1, 2) + y,
    "rot90": lambda x, y: torch.rot90(x, 1, [1, 2]) + y,
    "sum and mean": lambda x, y: x.sum(2) + y.mean(2),
    "var": lambda x, y: x.var(2, correction=0) + y[:, :, 0],
    "norm": lambda x, y: x / x.norm(dim=2, keepdim=True) + y,
    "softmax": lambda x, y: torch.softmax(x, 2) + y,
    "einsum": lambda x, y: torch.einsum("bti,bsi->bts", x, y),
    "reshape": lambda x, y: x.reshape(x.shape[0], -1) + y.reshape(y.shape[0], -1),
    "gather": lambda x, y: x.gather(2, torch.zeros_like(y).long()),
    "pad": lambda x, y: torch.nn.functional.pad(x, (1, 0, 0, 1))[:, 1:, 1:] + y,
}
SHAPES: dict[int, tuple[int, ...]] = {1: (3,), 2: (3, 3), 3: (2, 3, 3), 4: (2, 2, 3, 3)}


class _Applied(torch.nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def forward(self, x: Any, y: Any) -> Any:
        return OPERATORS[self.name](x, y)


def test_an_operator_is_refused_where_torch_stops(tmp_path: Path) -> None:
    """A file of numbers of axes that its program cannot take is one that no runtime loads, or that computes something else."""

    def check(case: tuple[str, tuple[int, int]]) -> None:
        name, ranks = case
        path = tmp_path / f"{name}.pt"
        if not path.exists():
            torch.jit.trace(_Applied(name), (torch.ones(2, 3, 3), torch.ones(2, 3, 3)), check_trace=False).save(str(path))
        inputs = [torch.randn(SHAPES[rank]) for rank in ranks]
        try:
            truth = torch.jit.load(str(path))(*inputs).numpy()
        except RuntimeError:
            truth = None
        try:
            rc.export_model(path, tmp_path / "m.onnx", axes=list(ranks), force=True)
        except rc.RnnConvertError as error:
            if ranks == (3, 3):
                raise
            raise NotComparedError(str(error)) from None
        run = RUNS["onnx"](tmp_path / "m.onnx")  # which loads whatever is written
        if truth is None:
            with pytest.raises(Exception):  # noqa: B017  onnxruntime has a class for every kind of fault
                run([x.numpy() for x in inputs])
            return
        (output,) = run([x.numpy() for x in inputs])
        assert output.shape == truth.shape and abs(output - truth).max() < 1e-5

    cases = [(name, ranks) for name in OPERATORS for ranks in itertools.product(SHAPES, SHAPES)]
    each(drawn(cases, 150, "ranks", always=lambda case: case[1] == (3, 3)), check)


class _ConvolvingCell(torch.nn.Module):
    def __init__(self, channels: int, units: int) -> None:
        super().__init__()
        self.units = units
        self.conv = torch.nn.Conv2d(channels + units, 4 * units, 3, padding=1)

    def forward(self, x: Any, h: Any, c: Any) -> tuple[Any, Any]:
        i, f, o, g = torch.split(self.conv(torch.cat([x, h], 1)), self.units, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c


class _Video(torch.nn.Module):
    """Images one after the other, read by a stack of ConvLSTMs; a dense layer needs the sizes of these."""

    def __init__(self, dense: bool) -> None:
        super().__init__()
        self.cell_list = torch.nn.ModuleList([_ConvolvingCell(2, 4), _ConvolvingCell(4, 3)])
        self.fc = torch.nn.Linear(3 * 6 * 5, 2) if dense else None

    def forward(self, x: Any) -> Any:
        for cell in self.cell_list:
            h = c = torch.zeros(x.shape[0], cell.units, *x.shape[3:])
            steps = []
            for step in range(x.shape[1]):
                h, c = cell(x[:, step], h, c)
                steps.append(h)
            x = torch.stack(steps, 1)
        return x if self.fc is None else self.fc(x[:, -1].flatten(1))


def test_images_one_after_the_other_have_five_axes(tmp_path: Path) -> None:
    torch.manual_seed(0)
    torch.jit.trace(_Video(dense=False).eval(), torch.randn(2, 2, 2, 6, 5)).save(tmp_path / "video.pt")
    rc.export_model(tmp_path / "video.pt", tmp_path / "video.onnx", verify=True)
    torch.jit.trace(_Video(dense=True).eval(), torch.randn(2, 2, 2, 6, 5)).save(tmp_path / "dense.pt")
    with pytest.raises(rc.RefusedError, match=r"\?x\?x\?x\?x\?"):
        rc.export_model(tmp_path / "dense.pt", tmp_path / "dense.onnx")
    rc.export_model(tmp_path / "dense.pt", tmp_path / "dense.onnx", axes=[[None, 2, 2, 6, 5]], verify=True)


def test_a_convolving_cell_of_a_state_dictionary_is_named(tmp_path: Path) -> None:
    torch.save({"state_dict": _Video(dense=True).state_dict()}, tmp_path / "video.ckpt")
    with pytest.raises(rc.RnnConvertError, match=r"cell_list\.1\.conv: its products are convolutions.*torch\.jit\.trace"):
        rc.convert(tmp_path / "video.ckpt", tmp_path / "out.keras")
    rc.inspect(tmp_path / "video.ckpt")
    # A convolution beside a recurrent layer is no cell, and one in a module of another name is a convolution.
    both = torch.nn.ModuleDict({"conv_lstm": torch.nn.ModuleDict({"conv": torch.nn.Conv1d(2, 4, 3), "lstm": torch.nn.LSTM(4, 3)})})
    torch.save(both.state_dict(), tmp_path / "both.pt")
    assert not rc.load(tmp_path / "both.pt").unread
    torch.save(torch.nn.Sequential(torch.nn.Conv1d(2, 4, 3)).state_dict(), tmp_path / "conv.pt")
    assert not rc.load(tmp_path / "conv.pt").unread


class _Stacked(torch.nn.Module):
    """Cells behind one another, whose states are stacked, as PyTorch's examples write it."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.cells = torch.nn.ModuleList([getattr(torch.nn, kind)(size, 6) for size in (5, 6)])

    def forward(self, x: Any, *states: Any) -> Any:
        after = []
        for number, cell in enumerate(self.cells):
            begun = tuple(state[number] for state in states)
            ends = cell(x, begun if self.kind == "LSTMCell" else begun[0])
            after.append(ends if self.kind == "LSTMCell" else (ends,))
            x = after[-1][0]
        return x, *(torch.stack(each) for each in zip(*after, strict=True))


@pytest.mark.parametrize("kind", ["LSTMCell", "GRUCell", "RNNCell"])
def test_stacked_states_have_the_axes_that_their_cells_read(kind: str, tmp_path: Path) -> None:
    """A trace states no axes. A state of one axis less would be spread over the batch, or be changed in place to another form."""
    model, x = _Stacked(kind).eval(), torch.randn(3, 5)
    states = [torch.randn(2, 3, 6) for _ in range(1 + (kind == "LSTMCell"))]
    torch.jit.trace(model, (x, *states)).save(str(tmp_path / "m.pt"))
    report = rc.export_model(tmp_path / "m.pt", tmp_path / "m.onnx", verify=True)
    assert [line.count(",") - line.count(", axis") for line in report.inputs] == [1, *(2 for _ in states)]
    outputs = RUNS["onnx"](tmp_path / "m.onnx")([x.numpy(), *(state.numpy() for state in states)])
    for output, truth in zip(outputs, model(x, *states), strict=True):
        assert abs(output - truth.detach().numpy()).max() < 1e-5


class StackOfLayers(torch.nn.Module):
    """Layers that each take their own states, as a slice of those of all."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.LSTM(4, 6, proj_size=4) for _ in range(3))

    def forward(self, x: Any, h: Any, c: Any) -> Any:
        states: list[Any] = []
        for n, layer in enumerate(self.layers):
            y, state = layer(x, (h[n : n + 1], c[n : n + 1]))
            x, states = x + y, [*states, state]
        return x, torch.cat([h for h, _ in states]), torch.cat([c for _, c in states])


def test_a_slice_of_one_layer_is_one(tmp_path: Path) -> None:
    """Of open states of several layers the second one is there: the source has no other use of them."""
    torch.manual_seed(0)
    example = torch.randn(5, 1, 4), torch.randn(3, 1, 4), torch.randn(3, 1, 6)
    torch.jit.trace(StackOfLayers().eval(), example).save(str(tmp_path / "m.pt"))
    done = rc.export_model(tmp_path / "m.pt", tmp_path / "m.onnx", verify=True)
    assert any("h.shape[0] >= 3 and c.shape[0] >= 3" in note for note in done.notes), done.notes


@pytest.mark.parametrize("parts", [4, 7])
def test_a_trace_that_takes_single_steps_apart_has_as_many(parts: int, tmp_path: Path) -> None:
    """Its code unpacks the steps: no other length runs, so that nobody need state it."""

    class Apart(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            total = torch.zeros_like(x[:, :1])
            for step in x.split(1, 1):
                total = torch.tanh(total + step)
            return total

    x = torch.randn(2, parts)
    torch.jit.trace(Apart(), x, check_trace=False).save(str(tmp_path / "m.pt"))
    report = rc.export_model(tmp_path / "m.pt", tmp_path / "m.onnx", axes=[2], verify=True)
    assert str(parts) in report.inputs[0]
    (output,) = RUNS["onnx"](tmp_path / "m.onnx")([x.numpy()])
    assert abs(output - Apart()(x).numpy()).max() < 1e-5


def test_what_is_packed_are_sequences_of_vectors(tmp_path: Path) -> None:
    """Packing takes two axes, too; whoever packs has three, and need not say so."""

    class Cleared(torch.nn.Module):
        def forward(self, x: Any, lengths: Any) -> Any:
            steps = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
            return torch.nn.utils.rnn.pad_packed_sequence(steps, batch_first=True)[0]

    x, lengths = torch.randn(3, 6, 4), torch.tensor([6, 4, 1])
    torch.jit.trace(Cleared(), (x, lengths)).save(str(tmp_path / "m.pt"))
    rc.export_model(tmp_path / "m.pt", tmp_path / "m.onnx", verify=True)
    (output,) = RUNS["onnx"](tmp_path / "m.onnx")([x.numpy(), lengths.numpy()])
    assert (output == Cleared()(x, lengths).numpy()).all()


@pytest.mark.parametrize("program", [False, True], ids=["trace", "program"])
@pytest.mark.parametrize("name", ["conv", "transposed", "slopes", "norm", "dense", "recurrent"])
def test_a_file_of_a_single_layer_has_a_name_for_it(name: str, program: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    module, x = {
        "conv": (torch.nn.Conv1d(2, 4, 2), torch.randn(2, 2, 6)),
        "transposed": (torch.nn.ConvTranspose1d(2, 4, 2, dilation=2, padding=1, output_padding=1), torch.randn(2, 2, 6)),
        "slopes": (torch.nn.PReLU(2), torch.randn(2, 2, 6)),
        "norm": (torch.nn.GroupNorm(1, 2), torch.randn(2, 2, 6)),
        "dense": (torch.nn.Linear(2, 3), torch.randn(2, 2)),
        "recurrent": (torch.nn.GRU(2, 3, batch_first=True), torch.randn(2, 5, 2)),
    }[name]
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.uniform_(-1, 1)
        expected = module.eval()(x)
    path = tmp_path / ("m.pt2" if program else "m.pt")
    if program:
        torch.export.save(torch.export.export(module, (x,)), path)
    else:
        torch.jit.trace(module, x).save(str(path))
    axes = () if program else [(None, *x.shape[1:])]
    for ending in ("onnx", "tflite", "xml"):
        rc.export_model(path, tmp_path / f"m.{ending}", axes=axes)
        y = RUNS[ending](tmp_path / f"m.{ending}")([x.numpy()])[0]
        torch.testing.assert_close(torch.from_numpy(y), expected[0] if isinstance(expected, tuple) else expected, rtol=1e-4, atol=1e-5)


def test_a_parameter_of_a_model_is_not_taken_for_its_layer_of_the_same_name(tmp_path: Path) -> None:
    torch.manual_seed(0)

    class Model(torch.nn.Conv1d):
        def __init__(self) -> None:
            super().__init__(2, 4, 2)
            self.layer = torch.nn.Conv1d(4, 3, 1)

        def forward(self, x: Any) -> Any:
            return self.layer(super().forward(x))

    model, x = Model().eval(), torch.randn(2, 2, 6)
    torch.jit.trace(model, x).save(tmp_path / "m.pt")
    rc.export_model(tmp_path / "m.pt", tmp_path / "m.onnx")
    y = RUNS["onnx"](tmp_path / "m.onnx")([x.numpy()])[0]
    torch.testing.assert_close(torch.from_numpy(y), model(x).detach())


def test_slopes_say_how_many_channels_there_are(tmp_path: Path) -> None:
    torch.manual_seed(0)
    torch.jit.trace(torch.nn.PReLU(3), torch.randn(2, 3, 5)).save(tmp_path / "m.pt")
    done = rc.export_model(tmp_path / "m.pt", tmp_path / "m.onnx", axes=3, verify=True)
    assert done.inputs[0].split(", ")[1] == "3"


class _Infinite(torch.nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def forward(self, x: Any) -> Any:
        return INFINITE[self.name](x, float("inf"))


INFINITE: dict[str, Callable[[Any, float], Any]] = {
    "pad": lambda x, inf: torch.softmax(torch.nn.functional.pad(x, (1, 1), value=-inf), -1),
    "clamp": lambda x, inf: x.clamp(min=0.0, max=inf),
    "masked_fill": lambda x, inf: torch.softmax(x.masked_fill(x > 0, -inf), -1),
    "add": lambda x, inf: torch.tanh(x + inf),
    "scatter": lambda x, inf: torch.softmax(x.scatter(1, x.argmax(1, keepdim=True), -inf), 1),
}


@pytest.mark.parametrize("name", INFINITE)
def test_a_program_has_infinite_numbers(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3)
    torch.export.save(torch.export.export(_Infinite(name), (x,)), tmp_path / "m.pt2")
    rc.export_model(tmp_path / "m.pt2", tmp_path / "m.onnx")
    y = RUNS["onnx"](tmp_path / "m.onnx")([x.numpy()])[0]
    torch.testing.assert_close(torch.from_numpy(y), _Infinite(name)(x))


class _Attending(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = torch.nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x: Any) -> Any:
        return self.attention(x, x, x)[0]


class _OfLengths(torch.nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def forward(self, x: Any) -> Any:
        return OF_LENGTHS[self.name](x)


OF_LENGTHS: dict[str, Callable[[Any], Any]] = {
    "a product in a view": lambda x: x.view(x.size(0) * 2, -1, 2).sum(1),
    "a product in an expand": lambda x: x.unsqueeze(1).expand(-1, x.size(1) * 2, -1, -1).sum(1),
    "half of a sum": lambda x: x[:, : (x.size(1) + 1) // 2] * 1.0,
    "a quotient towards zero": lambda x: x[:, : torch.div(x.size(1), 2, rounding_mode="trunc")] * 1.0,
    "a difference beside a tensor": lambda x: x * (1 - x.size(1)),
    "a product beside a tensor": lambda x: x.sum(1) / (x.size(1) * 3),
    "a product as a fraction": lambda x: x * torch.sqrt((torch.ones(()) * (x.size(1) * 2)).float()),
}
"""What a trace computes of lengths beside numbers, which it holds as tensors."""


@pytest.mark.parametrize("axes", [[(None, None, 4)], [(2, 6, 4)]], ids=["open", "stated"])
@pytest.mark.parametrize("name", [*OF_LENGTHS, "attention with several heads"])
def test_numbers_of_a_trace_are_computed_with_lengths(name: str, axes: list[tuple[int | None, ...]], tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = (_OfLengths(name) if name in OF_LENGTHS else _Attending()).eval()
    torch.jit.trace(module, torch.randn(2, 6, 4), check_trace=False).save(tmp_path / "m.pt")
    traced = torch.jit.load(tmp_path / "m.pt")
    rc.export_model(tmp_path / "m.pt", tmp_path / "m.onnx", axes=axes)
    for x in [torch.randn(2, 6, 4), *([torch.randn(3, 9, 4)] if None in axes[0] else [])]:
        y = RUNS["onnx"](tmp_path / "m.onnx")([x.numpy()])[0]
        torch.testing.assert_close(torch.from_numpy(y), traced(x).detach(), rtol=1e-4, atol=1e-5)
