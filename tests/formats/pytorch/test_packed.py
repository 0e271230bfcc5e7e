"""Packed sequences in PyTorch's programs: what is written gives what torch gives, whatever the lengths, their order and the padding."""

from __future__ import annotations

import importlib.util
import itertools
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core.errors import RefusedError
from tests.helpers.drawn import NotComparedError, drawn, each
from tests.helpers.exported import RUNS
from tests.helpers.requirements import needed

pytestmark = [
    pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::Warning:torch"),  # the tracer warns of much, and where it warns an error cannot pass
    pytest.mark.filterwarnings("ignore:pack_padded_sequence has been called with a Python list:UserWarning"),
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
]


class Case(NamedTuple):
    """A module over packed sequences.

    order  "given" for lengths from the longest on, "torch" for those that torch sorts, "own" for those that the code sorts
    total  whether it pads to the length that the sequences had, and not to the longest
    saved  "trace" or "script"
    """

    kind: str
    layers: int
    both: bool
    first: bool
    order: str
    total: bool
    padding: float
    begun: bool
    saved: str


CASES = [
    Case(*case)
    for case in itertools.product(
        ("LSTM", "GRU", "RNN"), (1, 2), (False, True), (False, True), ("given", "torch", "own"), (False, True), (0.0, -2.5), (False, True),
        ("trace", "script"),
    )
]  # fmt: skip
LENGTHS = ([7, 7, 3], [7, 4, 1], [5, 5, 2], [1, 1, 1])


_CODE = """
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class Packed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(12, 5)
        self.rnn = torch.nn.{kind}(5, 4, {layers}, bidirectional={both}, batch_first={first})
        self.start = torch.nn.Parameter(torch.randn({ways}, 1, 4))

    def forward(self, tokens: torch.Tensor, lengths: torch.Tensor):
        x = self.embed(tokens)
        {before}
        {turned}
        packed = pack_padded_sequence(x, lengths.cpu(), batch_first={first}, enforce_sorted={sorted})
        h = self.start.expand({ways}, tokens.size(0), 4).contiguous()
        output, states = self.rnn(packed{states})
        y, count = pad_packed_sequence(output, {first}, {padding}, {total})
        {after}
        return y, states, count
"""


def _module(case: Case, folder: Path) -> Any:
    import torch

    words = {
        "ways": case.layers * (1 + case.both),
        "before": "lengths, places = lengths.sort(descending=True); x = x[places]" if case.order == "own" else "pass",
        "turned": "pass" if case.first else "x = x.transpose(0, 1)",
        "after": f"y = y.index_select({1 - case.first}, torch.argsort(places))" if case.order == "own" else "pass",
        "sorted": case.order != "torch",
        "states": "" if not case.begun else ", (h, h * 0.5)" if case.kind == "LSTM" else ", h",
        "total": "tokens.size(1)" if case.total else "None",
    }
    torch.manual_seed(3)
    return _loaded(_CODE.format(**{**case._asdict(), **words}), folder).Packed().eval()


def _loaded(code: str, folder: Path) -> Any:
    """Return code as a module of Python, in a file that torch.jit.script reads."""
    path = folder / "packed_module.py"
    path.write_text(code)
    spec = importlib.util.spec_from_file_location("packed_module", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _saved(case: Case, folder: Path) -> tuple[Any, Path]:
    """Return a module, and the file of its trace or script."""
    import torch

    module = _module(case, folder)
    example = torch.ones(3, 7, dtype=torch.int64), torch.tensor([7, 4, 2])
    saved = torch.jit.script(module) if case.saved == "script" else torch.jit.trace(module, example, check_trace=False)
    saved.save(folder / "packed.pt")
    return module, folder / "packed.pt"


def _inputs(case: Case) -> list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    """Return padded sequences with their lengths, in an order that the module takes."""
    generator = np.random.default_rng(5)
    orders = [np.arange(3)] if case.order == "given" else [np.arange(3), np.array([1, 2, 0]), np.array([2, 0, 1])]
    return [(generator.integers(0, 12, (3, 7)), np.asarray(lengths)[order]) for lengths in LENGTHS for order in orders]


def _flat(values: Any) -> list[Any]:
    return [inner for value in values for inner in _flat(value)] if isinstance(values, tuple) else [values]


def _check(case: Case, folder: Path, ending: str) -> None:
    torch = needed("torch", "torch")
    folder.mkdir(parents=True)
    module, file = _saved(case, folder)
    written = folder / f"packed.{ending}"
    try:
        rc.export_model(file, written, axes=(2, 1))
    except RefusedError as error:
        assert ending != "onnx" and error.remedy, error
        raise NotComparedError(str(error)) from error
    run = RUNS[ending](written)
    for tokens, lengths in _inputs(case):
        theirs = _flat(module(torch.from_numpy(tokens), torch.from_numpy(lengths)))
        for mine, other in zip(run([tokens, lengths]), theirs, strict=True):
            assert mine.shape == tuple(other.shape), (mine.shape, other.shape)
            np.testing.assert_allclose(mine, other.detach().numpy(), atol=3e-6)


@pytest.mark.parametrize(("ending", "count"), [("onnx", 24), ("xml", 6), ("tflite", 6), ("mlpackage", 6)])
def test_packed_sequences_are_what_torch_computes(ending: str, count: int, tmp_path: Path) -> None:
    each(drawn(CASES, count, f"packed {ending}"), lambda case: _check(case, tmp_path / str(CASES.index(case)), ending))


_BETWEEN_MODULES = """
import torch
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence


class Layer(torch.nn.Module):
    def __init__(self, size: int):
        super().__init__()
        self.rnn = torch.nn.GRU(size, 4, batch_first=True)

    def forward(self, packed: PackedSequence):
        return self.rnn(packed)[0]


class Encoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.between = torch.nn.Linear(4, 4)
        self.first, self.second, self.last = Layer(5), Layer(4), torch.nn.LSTM(4, 3, batch_first=True)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor):
        packed = self.first(pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False))
        data = torch.tanh(self.between(packed.data)) * 0.5 + packed.data
        packed = self.second(PackedSequence(data, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices))
        y, count = pad_packed_sequence(packed, batch_first=True)
        _, (h, c) = self.last(pack_padded_sequence(y, count, batch_first=True, enforce_sorted=False))
        return y, h[0]


class Pair(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()

    def forward(self, question: torch.Tensor, lengths: torch.Tensor, answer: torch.Tensor, others: torch.Tensor):
        y, h = self.encoder(question, lengths)
        z, g = self.encoder(answer, others)
        return y.mean(1) * h.sum(1, keepdim=True), z.sum(1) + g.sum(1, keepdim=True)
"""


@pytest.mark.parametrize("saved", ["script", "trace"])
def test_packed_sequences_go_from_module_to_module(saved: str, tmp_path: Path) -> None:
    torch = needed("torch", "torch")
    module = _loaded(_BETWEEN_MODULES, tmp_path).Pair().eval()
    tensors = [torch.randn(3, 7, 5), torch.tensor([2, 7, 4]), torch.randn(3, 7, 5), torch.tensor([1, 1, 7])]
    file = torch.jit.script(module) if saved == "script" else torch.jit.trace(module, tensors, check_trace=False)
    file.save(tmp_path / "pair.pt")
    rc.export_model(tmp_path / "pair.pt", tmp_path / "pair.onnx", axes=(3, 1, 3, 1), verify=True)
    run = RUNS["onnx"](tmp_path / "pair.onnx")
    for lengths, others in (([2, 7, 4], [1, 1, 7]), ([3, 5, 4], [6, 6, 2])):
        tensors[1], tensors[3] = torch.tensor(lengths), torch.tensor(others)
        for mine, other in zip(run([tensor.numpy() for tensor in tensors]), module(*tensors), strict=True):
            np.testing.assert_allclose(mine, other.detach().numpy(), atol=3e-6)


def test_a_live_module_over_packed_sequences_names_its_script_as_the_way_out(tmp_path: Path) -> None:
    torch = needed("torch", "torch")
    module = _loaded(_BETWEEN_MODULES, tmp_path).Encoder().eval()
    with pytest.raises(RefusedError, match=r"torch\.jit\.script\(module\)\.save\('module\.pt'\)"):
        rc.export_model(module, tmp_path / "live.onnx", example=(torch.randn(2, 5, 5), torch.tensor([5, 2])))
    torch.jit.script(module).save(tmp_path / "module.pt")
    assert rc.export_model(tmp_path / "module.pt", tmp_path / "script.onnx").layers


def test_an_input_on_which_nothing_depends_is_named(tmp_path: Path) -> None:
    torch = needed("torch", "torch")
    encoder = _loaded(_BETWEEN_MODULES.replace("pack_padded_sequence(x, lengths,", "pack_padded_sequence(x, [5, 2],"), tmp_path).Encoder()
    torch.jit.trace(encoder.eval(), (torch.randn(2, 5, 5), torch.tensor([5, 2])), check_trace=False).save(tmp_path / "fixed.pt")
    done = rc.export_model(tmp_path / "fixed.pt", tmp_path / "fixed.onnx", axes=(3, 1))
    assert any("no output depends on its inputs 'lengths'" in note for note in done.notes), done.notes


_TOKENS = """
import torch
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence


class Tokens(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.rnn, self.head = torch.nn.Embedding(12, 5), torch.nn.RNN(5, 4), torch.nn.Linear(4, 2)

    def forward(self, tokens: torch.Tensor, lengths: torch.Tensor):
        packed = pack_padded_sequence(tokens, lengths)
        y, h = self.rnn(PackedSequence(self.embed(packed.data), packed.batch_sizes, None, None))
        scores, count = pad_packed_sequence(PackedSequence(torch.sigmoid(self.head(y.data)), y.batch_sizes, None, None))
        return scores, h
"""


@pytest.mark.parametrize("norm", ["", "torch.nn.BatchNorm1d(5)", "torch.nn.LayerNorm(5)"])
@pytest.mark.parametrize("saved", ["script", "trace"])
def test_what_is_done_to_the_data_of_packed_sequences_is_done_to_each_step(saved: str, norm: str, tmp_path: Path) -> None:
    torch = needed("torch", "torch")
    torch.manual_seed(4)
    code = _TOKENS.replace("torch.nn.Embedding(12, 5)", f"torch.nn.Sequential(torch.nn.Embedding(12, 5), {norm})")
    module = _loaded(code, tmp_path).Tokens().eval()
    for values in module.buffers():
        if values.is_floating_point():
            values.uniform_(0.5, 2.0)
    tokens = torch.randint(0, 12, (7, 3)), torch.tensor([7, 4, 1])
    file = torch.jit.script(module) if saved == "script" else torch.jit.trace(module, tokens, check_trace=False)
    file.save(tmp_path / "tokens.pt")
    rc.export_model(tmp_path / "tokens.pt", tmp_path / "tokens.onnx", verify=True)
    run = RUNS["onnx"](tmp_path / "tokens.onnx")
    for lengths in ([7, 4, 1], [3, 3, 2]):
        for mine, other in zip(run([tokens[0].numpy(), np.array(lengths)]), module(tokens[0], torch.tensor(lengths)), strict=True):
            np.testing.assert_allclose(mine, other.detach().numpy(), atol=3e-6)
