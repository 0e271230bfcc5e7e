"""Every operator of PyTorch's table, in small modules: what lies between layers, and what is described, is what torch computes.

An operator is one entry of the table, so no reader of programs knows one that another does not know.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core import reference
from rnnconvert.formats.pytorch import aten
from rnnconvert.formats.pytorch.aten_operator import AtenOperator, BoundCall
from rnnconvert.graphs.operators import SAME, Moves
from tests.formats.pytorch.test_between_torch import module as module_of
from tests.helpers.drawn import LONG, NotComparedError, drawn, each
from tests.helpers.requirements import needed
from tests.scaffolding.test_scaffold import module_at
from tests.scaffolding.test_scaffold_targets import as_graph

pytestmark = pytest.mark.filterwarnings("ignore:::")  # torch warns of traces, and of what it calls old
CLOSE = 2e-5
NOTHING = [
    "y.contiguous()", "y.clone()", "y.detach()", "torch.ops.aten.alias(y)", "torch.ops.aten.lift_fresh(y)", "y.resolve_conj()",
    "y.resolve_neg()", "torch.positive(y)", "y.cpu()", "F.dropout(y, 0.5, self.training)", "torch.feature_dropout(y, 0.5, False)",
    "F.alpha_dropout(y, 0.5, False)", "torch.feature_alpha_dropout(y, 0.5, False)", "y.to(torch.float32)",
    "y.double().float()", "y.transpose(0, 1).transpose(1, 0)", "y.swapaxes(0, 2).swapaxes(2, 0)", "y.swapdims(0, 2).swapdims(0, 2)",
    "y.movedim(0, 1).movedim(1, 0)", "torch.moveaxis(torch.moveaxis(y, (0, 1), (1, 2)), (1, 2), (0, 1))",
    "y.permute(1, 2, 0).permute(2, 0, 1)",
    "torch.stack([y[:, :, 0].t(), y[:, :, 1].t(), y[:, :, 2].t(), y[:, :, 3].t()]).permute(2, 1, 0)", "y.mT.mT", "y.mH.mH",
    "y.adjoint().adjoint()", "torch.stack([y[:, :, 0].T, y[:, :, 1].T, y[:, :, 2].T, y[:, :, 3].T]).permute(2, 1, 0)",
    "y.reshape(-1, 4).reshape(y.shape[0], y.shape[1], 4)", "y.contiguous().view(y.size(0), -1, 4)",
    "y.reshape(y.shape[0], y.shape[1], 2, 2).view_as(y)", "y.reshape(y.shape[0], y.shape[1], 2, 2).reshape_as(y)",
    "y.flatten(1).reshape(y.shape)", "y.flatten(0, 1).unflatten(0, (y.shape[0], y.shape[1]))", "y.ravel().view(y.shape)",
    "y.unsqueeze(0).squeeze(0)", "y.unsqueeze(1).squeeze(1)", "y.expand(-1, -1, 4)", "y.expand_as(y)", "torch.broadcast_to(y, y.shape)",
    "y.repeat(1, 1, 1)", "y.tile((1, 1, 2))[:, :, :4]", "torch.tile(y, (2,))[:, :, :4]", "y.repeat_interleave(2, 2)[:, :, ::2]",
    "torch.repeat_interleave(y, 2, dim=1)[:, ::2]", "y.flip(1).flip(1)", "torch.fliplr(torch.fliplr(y))",
    "torch.flipud(torch.flipud(y))", "y.roll(1, 2).roll(-1, 2)", "torch.roll(torch.roll(y, 1, 1), -1, 1)",
    "y.roll((1, 2), (1, 2)).roll((-1, -2), (1, 2))", "torch.rot90(torch.rot90(y, 1, [0, 1]), -1, [0, 1])",
    "torch.rot90(torch.rot90(y, 2, [1, 2]), 2, [1, 2])", "F.pad(y, (1, 2))[:, :, 1:5]",
    "torch.constant_pad_nd(y, (0, 1), 2.0)[:, :, :4]", "y[:, 0:, 0:4]", "y.narrow(2, 0, 4)",
    "torch.cat([y.narrow(2, 0, 2), y.narrow(2, -2, 2)], 2)", "torch.stack([y[:, :, 0], y[:, :, 1], y[:, :, 2], y[:, :, 3]], 2)",
    "torch.cat([y[:, :, :2], y[:, :, 2:]], 2)", "torch.concat([y[:, :, :2], y[:, :, 2:]], 2)",
    "torch.concatenate([y[:, :, :2], y[:, :, 2:]], 2)", "torch.stack([y, y], 0)[0]", "torch.hstack([y[:, :1], y[:, 1:]])",
    "torch.vstack([y[:1], y[1:]])", "torch.dstack([y[:, :, :1], y[:, :, 1:]])", "torch.column_stack([y[:, :1], y[:, 1:]])",
    "torch.cat(torch.chunk(y, 2, -1), -1)", "torch.cat(torch.split(y, 2, -1), -1)", "torch.cat(torch.split(y, [1, 3], -1), -1)",
    "torch.cat(torch.tensor_split(y, 3, -1), -1)", "torch.cat(torch.tensor_split(y, [1, 3], -1), -1)",
    "torch.stack(torch.unbind(y, 2), 2)", "torch.cat(torch.unsafe_chunk(y, 2, -1), -1)", "torch.cat(torch.unsafe_split(y, 2, -1), -1)",
    "torch.cat(torch.unsafe_split_with_sizes(y, [1, 3], -1), -1)",
]  # fmt: skip
"""What changes nothing of y, of (batch, time, 4): the layers are joined, and the module is described."""

PLACES = [
    "y.index_select(2, self.places)", "y.gather(2, self.places.expand_as(y))", "y[:, :, self.places]", "y[:, :, self.places - 4]",
    "y[torch.arange(y.size(0)).unsqueeze(1), torch.arange(y.size(1))]",
    "y[torch.arange(y.size(0)), self.last].unsqueeze(1).expand(-1, 3, 4)", "y[:, self.last, self.last].unsqueeze(2).expand(-1, -1, 4)",
    "y[self.last, :, self.last]",
]  # fmt: skip
"""Elements at places that the weights or a run state: they are described, and between layers they are named."""

_PLAIN = "sin cos exp sqrt square sign neg abs floor ceil round erf trunc rsqrt selu logit relu tanh sigmoid log"
_FUNCTIONS = "gelu elu silu leaky_relu hardtanh softplus softsign hardsigmoid hardswish mish relu6 logsigmoid"
COMPUTES = [
    "torch.tan(y)", "torch.reciprocal(y.abs() + 0.1)",
    *(f"torch.{name}(y.abs() + 0.1)" if name in ("log", "sqrt", "rsqrt", "logit") else f"torch.{name}(y * 3)" for name in _PLAIN.split()),
    *(f"F.{name}(y * 3)" for name in _FUNCTIONS.split()),
    "y + 1", "torch.add(y, y, alpha=2)", "torch.sub(y, y * 3, alpha=2)", "torch.rsub(y, y * 3, alpha=2)", "y * 2", "y / 2",
    "torch.div(y, 0.3)", "torch.div(y, 0.3, rounding_mode='floor')", "torch.floor_divide(y, 0.5)", "torch.true_divide(y, 2)",
    "torch.maximum(y, y * 2)", "torch.minimum(y, y * 2)", "torch.where(y > 0, y, y * 2)", "y.pow(2)", "2 ** y",
    "torch.remainder(y, 0.3)", "torch.fmod(y, 0.3)", "y.softmax(-1)", "F.softmax(y, 1)", "y.log_softmax(-1)", "F.layer_norm(y, [4])",
    "F.layer_norm(y, [4], None, None, 0.1)", "F.rms_norm(y, [4])", "y.cumsum(1)", "y.cumsum(1, dtype=torch.float64).float()",
    "y.masked_fill(y < 0, 0.0)", "self.dense(y)", "torch.mm(y[:, 0], self.w).unsqueeze(1)", "y @ self.w",
    "torch.bmm(y, y.transpose(1, 2) @ y)", "torch.addmm(y[:, 0], y[:, 0], self.w).unsqueeze(1)",
    "torch.einsum('btc,cd->btd', y, self.w)", "y.clamp(-0.1, 0.1)", "y.clip(-0.1, 0.1)", "y.clamp(max=0.1)", "y.clamp_min(0.1)",
    "y.clamp_max(0.1)", "F.elu(y, 0.5)", "F.softplus(y, 2.0)", "torch.round(y, decimals=2)", "F.leaky_relu(y, 0.3)",
    "F.hardtanh(y, -0.1, 0.2)", "F.gelu(y, approximate='tanh')", "torch.constant_pad_nd(y, (0, 1), 2.0)[:, :, 1:]",
    "F.pad(y, (0, 1), value=2.0)[:, :, 1:]", "F.pad(y, (0, 1), 'replicate')[:, :, 1:]", "y.mean(1, keepdim=True)",
    "y.sum(1, keepdim=True)", "y.sum(dtype=torch.float64).float() + y", "y.mean((1, 2), keepdim=True) + y", "y.amax(1, keepdim=True)",
    "y.amin(1, keepdim=True)", "y.max(1, keepdim=True)[0]", "y.min(1, keepdim=True)[0]", "torch.max(y, y * 2)",
    "y.argmax(2, keepdim=True).float().expand(-1, -1, 4)", "y.argmin(2, True).float().expand(-1, -1, 4)",
    "y.var(2, keepdim=True).expand(-1, -1, 4)", "y.std(2, False, True).expand(-1, -1, 4)",
    "y.std(2, correction=0, keepdim=True).expand(-1, -1, 4)", "torch.stack([y, -y], 1).flatten(1, 2).std(1, keepdim=True) + y",
    "y * torch.stack([y, -y]).var((0, 2), keepdim=True)[0] + y.sub(torch.stack([y, -y]).var())",
    "y.norm(dim=2, keepdim=True).expand(-1, -1, 4)",
    "y.norm(1, 2, True).expand(-1, -1, 4)", "torch.linalg.vector_norm(y, 2, -1, True).expand(-1, -1, 4)", "y.topk(4, 2)[0]",
    "y + torch.div(y.argmax(2, True) - 2, 3, rounding_mode='floor').float()",
    "y + torch.div(y.argmax(2, True) - 2, 3, rounding_mode='trunc').float()",
    "y + y[:, 0, 0].sort(0)[0].reshape(-1, 1, 1)", "y + y[:, 0, 0].argsort(0, True).float().reshape(-1, 1, 1)",
    "y[torch.empty_like(y[:, 0, 0].argsort()).scatter(0, y[:, 0, 0].argsort(), torch.arange(y.size(0)))]",
    "y.scatter(2, y.argmax(2, True), 1.5)", "y + torch.zeros_like(y).scatter(2, y.topk(2, 2)[1], 1)",
    "y.topk(2, 2, False)[0].repeat(1, 1, 2)", "F.glu(torch.cat([y, y], 2), 2)", "F.scaled_dot_product_attention(y, y, y)",
    "y + torch.zeros_like(y)", "y + torch.ones(4)", "y + torch.zeros(4)", "y + torch.full((4,), 2.0)", "y + torch.arange(4)",
    "y + torch.arange(1, 9, 2)", "y + y.new_zeros(4)", "y + y.new_ones(4)", "y + y.new_full((4,), 2.0)", "y + torch.full_like(y, 0.5)",
    "y + torch.ones_like(y)", "self.norm(y.transpose(1, 2)).transpose(1, 2)", "self.batch(y.transpose(1, 2)).transpose(1, 2)",
    "self.prelu(y)", "self.conv(y.transpose(1, 2)).transpose(1, 2)", "self.up(y.transpose(1, 2)).transpose(1, 2)",
    "F.max_pool1d(y.transpose(1, 2), 1).transpose(1, 2)", "F.avg_pool1d(y, 1)",
    "F.adaptive_avg_pool1d(y.transpose(1, 2), 1).transpose(1, 2)", "F.adaptive_max_pool1d(y.transpose(1, 2), 1).transpose(1, 2)",
    "torch.logical_and(y > 0, y < 0.5).float()", "torch.logical_or(y > 0, y < 0.5).float()",
    "torch.logical_xor(y > 0, y < 0.5).float()", "((y > 0) & (y < 0.5)).float()", "((y > 0) | (y < 0.5)).float()",
    "((y > 0) ^ (y < 0.5)).float()", "torch.logical_not(y > 0).float()", "(~(y > 0)).float()", "(y == 0).float()", "(y != 0).float()",
    "(y >= 0).float()", "(y <= 0).float()", "y.mul(4).int().float()", "y.type_as(y)",
    "y.mul(4).type_as(self.places).float()", "y.mul(4).to(self.places).float()", "y * int(y.sum() * 10)", "y * float(int(y.sum() * 10))",
    "y * (y.sum() * 10).item()", "y * len(y)", "y * y.dim()", "y * y.numel()", "torch.slice_scatter(y, y[:, 0:1] * 1.0, 1, 0, 1)",
    "torch.select_scatter(y, y[:, 0] * 2, 1, 0)", "self.embedding(y.argmax(2))",
]  # fmt: skip
"""What computes: between layers it is named, and it is described, or refused by name."""
CASES = [*NOTHING, *PLACES, *COMPUTES]
FORMS = ("script", "trace", "export", "live")
_SOURCE = """
import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.GRU(3, 4, batch_first=True)
        self.b = nn.GRU(4, 4, batch_first=True)
        self.dense, self.norm, self.prelu, self.batch = nn.Linear(4, 4), nn.GroupNorm(2, 4), nn.PReLU(), nn.BatchNorm1d(4)
        self.conv, self.up, self.embedding = nn.Conv1d(4, 4, 1), nn.ConvTranspose1d(4, 4, 1), nn.Embedding(4, 4)
        self.w = nn.Parameter(torch.ones(4, 4))
        self.register_buffer("places", torch.arange(4))
        self.register_buffer("last", torch.tensor([2, 0, 1]))

    def forward(self, x):
        y = self.a(x)[0]
        y = {code}
        return {last}
"""


def model_of(code: str, last: str, form: str, folder: Path, x: Any) -> tuple[Any, Any]:
    """Return a module as a source, and what torch runs of it. Raises what torch raises for one that it cannot write."""
    torch = needed("torch", "torch")
    model = module_of(_SOURCE.format(code=code, last=last), folder)
    with torch.no_grad():
        model.batch.running_var.fill_(0.5)
        model(x)
    if form == "live":
        return model, model
    path = folder / ("m.pt2" if form == "export" else "m.pt")
    with torch.no_grad():
        if form == "export":
            auto = torch.export.Dim.AUTO
            torch.export.save(torch.export.export(model, (x,), dynamic_shapes=({0: auto, 1: auto},), strict=False), path)
            return path, torch.export.load(path).module()
        (torch.jit.script(model) if form == "script" else torch.jit.trace(model, x, check_trace=False)).save(str(path))
    return path, torch.jit.load(str(path))


def joined(path: Path, truth: Any, x: Any) -> str:
    """Return "joined" where nothing lies between the layers of a file, and else what does; joined layers give what torch gives."""
    torch = needed("torch", "torch")
    layers = {name: layer for name, layer in rc.load(path).layers.items() if name in ("a", "b")}
    try:
        stack = rc.join_stack(list(layers.values()))
    except ValueError as refusal:
        return str(refusal)
    with torch.no_grad():
        expected = truth(x).numpy()
    y = reference.run(stack, x.numpy().swapaxes(0, 1)).y.swapaxes(0, 1)
    assert y.shape == expected.shape and np.abs(y - expected).max() < 1e-5, "joined, and gives other numbers"
    return "joined"


def described(source: Any, truth: Any, folder: Path, form: str, target: str, x: Any) -> str:
    """Return "equal" for a module that is written, which gives what torch gives for inputs of two sizes, and else the refusal."""
    torch = needed("torch", "torch")
    example = [x] if form == "live" else None
    try:
        if target == "onnx":
            run: Callable[[Any], Any] = as_graph(source, folder / "written.onnx", example)
        else:
            rc.scaffold(source, "pytorch", folder / "written.py", example=example, force=True)
            run = module_at(folder / "written.py").load(source if form == "live" else str(source))
    except rc.RefusedError as refusal:
        return str(refusal)
    for inputs in (x, torch.randn(3, 6, 3)):
        with torch.no_grad():
            try:
                wanted = truth(inputs)
            except Exception:  # torch raises what it likes for a length that it does not take; that of the example it has taken
                assert inputs is not x
                continue
            try:
                got = run(inputs)
            except ValueError as error:  # a live module is followed at the example's lengths where it depends on them
                assert form == "live" and inputs is not x and "expected x.shape[1] == 5" in str(error)
                continue
        close = CLOSE * max(1.0, float(wanted.nan_to_num().abs().max())) if wanted.numel() else CLOSE
        torch.testing.assert_close(got, wanted, rtol=0.0, atol=close, equal_nan=True, check_dtype=False)
    return "equal"


def check(code: str, form: str, folder: Path, target: str) -> None:
    """Hold what every reader of a program says of an operator against torch, and against what the others say."""
    torch = needed("torch", "torch")
    torch.manual_seed(1)
    x = torch.randn(3, 5, 3)
    words = set(re.findall(r"[a-z_0-9]+", code))
    if form != "live":
        try:
            path, truth = model_of(code, "self.b(y)[0]", form, folder, x)
        except Exception:  # torch raises what it likes where it cannot write a module; or no layer reads y, whose axes are others
            assert code not in NOTHING or form != "script"
        else:
            answer = joined(path, truth, x)
            assert (answer == "joined") == (code in NOTHING), answer
    try:
        source, truth = model_of(code, "y", form, folder, x)
    except Exception as error:  # torch raises what it likes where it cannot write a module
        raise NotComparedError(str(error)) from None
    answer = described(source, truth, folder, form, target, x)
    if answer != "equal":
        named = re.search(
            r"the operator (\w+)|torch.export cannot follow|a cast to|a (?:layer|variance|program)|index by several axes", answer
        )
        assert code not in NOTHING and named, answer
        assert code not in PLACES[:-1] or form == "trace", (answer, words)


@pytest.mark.parametrize("target", ["pytorch", "onnx"])
@pytest.mark.parametrize("form", FORMS)
def test_an_operator_is_the_same_to_every_reader(form: str, target: str, tmp_path: Path) -> None:
    count = {"script": 16, "trace": 8, "export": 4, "live": 2}[form]
    each(drawn(CASES, count, f"aten {form} {target}"), lambda code: check(code, form, tmp_path, target))


_OF_PROGRAMS = re.compile(r".* .*|if|pack|padded|batches|range_length|derive_index|quotient|slice_list|list.*|same|_.*|sym_.*|.*_cell")
"""Names that programs alone have: of numbers and lists, of loops and packed sequences, and what torch makes of others."""
_ALIKES = """
IntImplicit ScalarImplicit NumToTensor Bool cuda requires_grad view_copy lift_fresh_copy matrix_H unsafe_tensor_split unsafe_unbind
convolution lstm rnn_tanh rnn_relu int float bool type empty contains and or not xor adjoint bitwise_and bitwise_or bitwise_xor clip
concat concatenate lift moveaxis rsub softsign split_with_sizes swapaxes swapdims true_divide
"""
_ALIKE = set(_ALIKES.split())
_ALIKE |= {
    f"{name}{rank}d"
    for rank in (2, 3)
    for name in ("conv", "conv_transpose", "max_pool", "avg_pool", "adaptive_avg_pool", "adaptive_max_pool")
}
"""Names of what stands in the cases under another name, or of other axes."""


def test_every_operator_of_the_table_is_in_a_case(tmp_path: Path) -> None:
    torch = needed("torch", "torch")
    seen = set(_ALIKE)
    for code in CASES:
        try:
            graph = torch.jit.script(module_of(_SOURCE.format(code=code, last="y"), tmp_path)).inlined_graph
        except Exception:  # torch scripts no module with this; its operators have to be in another case
            continue
        seen |= set(re.findall(r"aten::(\w+)", str(graph)))
    every = {name for name in aten.OPERATORS if not _OF_PROGRAMS.fullmatch(name)}
    assert every <= seen, sorted(every - seen)


def schemas(name: str) -> list[Any]:
    """The overloads of an operator that torch has, but for those that fill a tensor that is handed over."""
    torch = needed("torch", "torch")
    packet = getattr(torch.ops.aten, name, None)
    every = [getattr(packet, overload)._schema for overload in packet.overloads()] if packet is not None else []
    tensors = [schema for schema in every if schema.arguments and str(schema.arguments[0].type) in ("Tensor", "List[Tensor]", "List[int]")]
    return [schema for schema in tensors if not any(argument.is_out for argument in schema.arguments)]


_BY_ITS_VALUE = {
    ("to", "dtype"),
    ("repeat_interleave", "repeats"),
    ("var", "unbiased"),
    ("std", "unbiased"),
    ("max", "other"),
    ("min", "other"),
}
"""Parameters whose place differs from overload to overload: rules tell them by what stands there."""


def test_no_argument_stands_for_another_parameter() -> None:
    """A third argument of constant_pad_nd is the number, of pad the mode: read as pad, it was lost, and zeros were put there."""
    wrong = []
    for name, operator in aten.OPERATORS.items():
        for schema in schemas(name) if operator.parameters else ():
            stated = [argument.name for argument in schema.arguments if not argument.kwarg_only]
            for place, word in enumerate(stated):
                if word in operator.names and operator.names.index(word) != place and (name, word) not in _BY_ITS_VALUE:
                    wrong.append(f"{name}: {word} is argument {place} of {schema}")
    assert not wrong


def test_what_shares_elements_is_what_torch_says() -> None:
    for name, operator in aten.OPERATORS.items():
        for schema in schemas(name):
            aliases = any(result.alias_info is not None and not result.alias_info.is_write for result in schema.returns)
            assert not aliases or operator.shares, str(schema)


def test_an_operator_that_moves_is_described() -> None:
    """What a program has beside torch's operators is read where its layers are."""
    moving = [name for name, operator in aten.OPERATORS.items() if isinstance(operator.elements, Moves) and operator.elements is not SAME]
    assert all(aten.OPERATORS[name].rule is not None for name in moving if aten.OPERATORS[name].parameters)
    assert len(moving) > 50


def test_an_argument_that_nothing_looks_at_is_refused() -> None:
    operator = AtenOperator("x decimals dim memory_format")
    call = BoundCall("round", operator, None, [1.0, 2, None], {"memory_format": 3})
    assert call("x") == 1.0
    with pytest.raises(ValueError, match="the argument 'decimals'"):
        call.check_read()
    call.note_read("decimals")
    call.check_read()
    assert LONG or not call("dim")
