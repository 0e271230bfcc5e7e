"""Modules of ours for the cells that torch.nn lacks: what they compute, and that they are used as torch.nn's are."""

from __future__ import annotations

import copy
import io
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import rnnconvert as rc
from rnnconvert.core import reference
from rnnconvert.core.arrays import BFLOAT16, Array
from rnnconvert.core.cells import HARD_SIGMOID_KERAS_2, Activation, Cell, Clip
from rnnconvert.core.reference import Outputs
from rnnconvert.core.weights import Layer, Recurrent, Unconvertible
from rnnconvert.formats.pytorch.module import ForeignGRU, ForeignLSTM, module_of, module_of_text
from rnnconvert.language import outline
from rnnconvert.language.layout import Sizes
from rnnconvert.rewrites import each
from tests.helpers.drawn import LONG, looped
from tests.helpers.foreign import (
    BATCH,
    PEEPHOLES,
    READ_BOUNDS,
    TIME,
    WIDTH,
    Maker,
    has_cell,
    near,
    problem,
    read_clipped,
    solved_one_by_one,
    swapped,
)
from tests.helpers.judging import WRONG, Problem, excess
from tests.helpers.stacks import BOTH, PLAIN, backwards, random_stack

SEEDS = range(60)
GRU_BEFORE = Cell("gru", False)


def tensors(states: tuple[Array, ...] | None, dtype: Any = None) -> tuple[Any, ...]:
    return tuple(torch.tensor(state, dtype=dtype) for state in states or ())


def together(states: tuple[Any, ...]) -> Any:
    """States as a module takes them: one tensor where they are of one width."""
    return torch.stack(states) if len({state.shape for state in states}) == 1 else states


def hx_of(case: Problem, dtype: Any = None) -> Any:
    if case.hidden is None:
        return None
    h, c = together(tensors(case.hidden, dtype)), together(tensors(case.cell, dtype))
    return (h, c) if has_cell(case.stack) else h


def outputs(y: Any, hx: Any, stack: Recurrent) -> Outputs:
    """What a module gives, as the reference gives it: that has cell states only where the first cell is an LSTM."""
    h, c = hx if has_cell(stack) else (hx, ())
    c = c if stack.cell.kind == "lstm" else ()
    return Outputs(*(plain(y), tuple(map(plain, h)), tuple(map(plain, c))))


def plain(tensor: Any) -> Array:
    return np.asarray(tensor.detach().numpy())


def solve(module: Any, case: Problem, dtype: Any = None) -> Outputs:
    y, hx = module(torch.tensor(case.x, dtype=dtype), hx_of(case, dtype))
    return outputs(y, hx, case.stack)


def all_near(result: Outputs, exact: Outputs) -> bool:
    ours, truth = ([given_outputs.y, *given_outputs.hidden, *given_outputs.cell] for given_outputs in (result, exact))
    return all(near(a, b) for a, b in zip(ours, truth, strict=True))


# What they compute ----------------------------------------------------------------------------------


@looped(12, seed=SEEDS, states=[True, False])
def test_any_layer_gives_what_the_reference_gives(seed: int, states: bool) -> None:
    case = problem(Maker(seed).stack(), seed, states)
    module = module_of(case.stack)
    assert excess(case, solve(module, case)) <= 1
    assert all_near(solve(module.double(), case, torch.float64), case.solved())


@looped(12, bounds=READ_BOUNDS, seed=range(8))
def test_a_cell_state_is_clipped_where_it_is_read(bounds: tuple[float, float], seed: int) -> None:
    clipped = read_clipped(bounds, seed)
    module = module_of(clipped.stack)
    assert excess(clipped, solve(module, clipped)) <= 1
    module = module.double()
    exact = clipped.solved()
    assert all_near(solve(module, clipped, torch.float64), exact)
    # The clip of TensorFlow 1 gives the same outputs from initial states within the bounds; its final cell states are bounded.
    other = each(clipped.stack, lambda d: d.replace(cell=d.cell.replace(clips=(Clip("cell", *bounds),))))
    bounded = reference.run(other, clipped.x, clipped.hidden, tuple(np.clip(state, *bounds) for state in clipped.cell or ()))
    assert all_near(Outputs(exact.y, exact.hidden, tuple(np.clip(state, *bounds) for state in exact.cell)), bounded)
    assert not all_near(exact, bounded)


@looped(6, bounds=READ_BOUNDS, seed=range(8))
def test_the_gradient_of_a_clipped_cell_state_is_zero_where_the_clip_holds(bounds: tuple[float, float], seed: int) -> None:
    clipped = read_clipped(bounds, seed)
    slopes = reference.Reference(clipped.stack).gradients(clipped.x, clipped.hidden or (), clipped.cell or (), None, clipped.solved())
    for slope, state in zip(slopes.cell, clipped.cell or (), strict=True):
        assert not slope[(state < bounds[0]) | (state > bounds[1])].any()


def test_the_random_layers_have_every_feature() -> None:
    stacks = [Maker(seed).stack() for seed in SEEDS]
    directions = [direction for stack in stacks for *_, direction in stack.directions()]
    cells = [direction.cell for direction in directions]
    functions = {f.name for c in cells for f in (c.activation, c.gate_activation, c.output_activation)}
    assert functions >= set(outline_functions())
    assert {clip.kind for cell in cells for clip in cell.clips} == {"gates", "cell", "state", "projection"}
    assert {cell.coupled for cell in cells} == {"", "f", "i"} and any(cell.constants for cell in cells)
    assert {(cell.kind, cell.reset_after) for cell in cells} == {
        ("rnn", None), ("gru", True), ("gru", False), ("lstm", None),
    }  # fmt: skip
    assert {part for direction in directions for part, _ in direction.arrays} >= {
        "peephole", "projection", "initial_hidden", "initial_cell",
    }  # fmt: skip
    assert {direction.biases for direction in directions} == {"none", "input", "recurrent", "both"}
    assert any(direction.skip_input for direction in directions)
    assert {layer.merge for stack in stacks for layer in stack.layers} == {"concat", "sum", "mul", "ave", "none"}
    assert {stack.join for stack in stacks} == {"layer", "end"} and any(stack.readout for stack in stacks)
    assert {stack.output_order for stack in stacks} == {"time", "processing"}
    assert any(len({cell.kind for cell in map(lambda entry: entry[2].cell, stack.directions())}) > 1 for stack in stacks)


def outline_functions() -> list[str]:
    from rnnconvert.core.cells import ACTIVATION_DEFAULTS
    from rnnconvert.formats.pytorch.module_stack import FUNCTIONS

    assert set(FUNCTIONS) == set(ACTIVATION_DEFAULTS) == set(reference.FUNCTIONS)
    return [*ACTIVATION_DEFAULTS]


@pytest.mark.parametrize("kind", ["gru", "lstm"])
@pytest.mark.parametrize("seed", range(5))
def test_gates_in_the_wrong_order_are_caught(kind: str, seed: int) -> None:
    form = Sizes(kind, WIDTH, 5, 1, 2, parts=PEEPHOLES if kind == "lstm" else BOTH)
    stack = random_stack(form, seed, np.float32, None if kind == "lstm" else GRU_BEFORE)
    case = problem(stack, seed, True)
    assert excess(case, solve(rc.to_torch(stack), case)) <= 1
    assert excess(case, solve(rc.to_torch(swapped(stack)), case)) > WRONG


def test_the_other_reset_gate_is_caught() -> None:
    stack = random_stack(Sizes("gru", WIDTH, 5), 1, np.float32, GRU_BEFORE)
    case = problem(stack, 1, True)
    other = torch.nn.GRU(WIDTH, 5)
    weights = rc.to_torch(stack).state_dict()
    del weights["outline"]
    other.load_state_dict(weights)
    assert excess(case, solve(other, case)) > WRONG


@looped(12, seed=SEEDS, states=[True, False])
def test_packed_sequences_of_many_lengths(seed: int, states: bool) -> None:
    case = problem(Maker(seed, dtype="float64").stack(), seed, states, lengths=True)
    module = module_of(case.stack)
    assert case.lengths is not None
    packed = torch.nn.utils.rnn.pack_padded_sequence(torch.tensor(case.x), torch.tensor(case.lengths), enforce_sorted=False)
    y, hx = module(packed, hx_of(case))
    assert torch.equal(y.batch_sizes, packed.batch_sizes) and torch.equal(y.sorted_indices, packed.sorted_indices)
    unpacked, lengths = torch.nn.utils.rnn.pad_packed_sequence(y)
    assert lengths.tolist() == case.lengths.tolist()
    result = outputs(unpacked, hx, case.stack)
    for row, exact in enumerate(solved_one_by_one(case)):
        length = len(exact.y)
        assert near(result.y[:length, row : row + 1], exact.y) and not result.y[length:, row].any()
        for ours, truth in ((result.hidden, exact.hidden), (result.cell, exact.cell)):
            assert all(near(a[row : row + 1], b) for a, b in zip(ours, truth, strict=True))


@looped(8, seed=SEEDS)
def test_gradients_are_the_references(seed: int) -> None:
    states = bool(seed % 2)
    stack = Maker(seed, dtype="float64").stack()
    case = problem(stack, seed, states)
    module = module_of(stack)
    weigh, _ = case.cotangents(seed)
    hidden, cell = (case.hidden or (), case.cell or ())
    truth = reference.Reference(stack).gradients(case.x, hidden, cell, None, weigh)
    x = torch.tensor(case.x, requires_grad=True)
    hs, cs = ([state.requires_grad_() for state in tensors(part)] for part in (case.hidden, case.cell))
    hx = None if not states else (together(tuple(hs)), together(tuple(cs))) if has_cell(stack) else together(tuple(hs))
    y, finals = module(x, hx)
    h, c = finals if has_cell(stack) else (finals, ())
    c = c if stack.cell.kind == "lstm" else ()
    pairs = zip((y, *h, *c), (weigh.y, *weigh.hidden, *weigh.cell), strict=True)
    sum((value * torch.tensor(weight)).sum() for value, weight in pairs).backward()
    assert near(plain(x.grad), truth.x, 1e-9)
    for leaf, gradient in zip((*hs, *(cs if has_cell(stack) else [])), (*truth.hidden, *truth.cell), strict=False):
        assert near(plain(torch.zeros_like(leaf) if leaf.grad is None else leaf.grad), gradient, 1e-9)
    slopes = {name: plain(torch.zeros_like(p) if p.grad is None else p.grad) for name, p in module.named_parameters()}
    filled = outline.filled(outline.from_text(module.text), outline.TORCH, slopes)
    for (*_, ours), wanted in zip(filled.directions(), truth.weights, strict=True):
        for key, gradient in wanted.items():
            assert near(np.asarray(ours.arrays[key]), gradient, 1e-9), key


# torch.nn's own come first ---------------------------------------------------------------------------


def test_torchs_own_class_is_given_wherever_it_holds_the_layer() -> None:
    assert type(rc.to_torch(random_stack(Sizes("gru", 3, 4), 1))) is torch.nn.GRU
    coupled = random_stack(Sizes("lstm", 3, 4), 1, cell=Cell("lstm", coupled="f"))
    assert type(rc.to_torch(coupled)) is torch.nn.LSTM  # rewritten, as ever
    stack = random_stack(Sizes("lstm", 3, 4, parts=PEEPHOLES), 1)
    assert type(rc.to_torch(stack)) is ForeignLSTM
    with pytest.raises(rc.RefusedError, match="peepholes"):
        rc.to_torch(stack, own=False)
    with pytest.raises(rc.RefusedError, match="peepholes"):
        rc.to_torch(stack, module="cell")


def test_what_the_caller_takes_over_is_left_out_of_ours_too() -> None:
    stack = random_stack(Sizes("lstm", 3, 4, 1, 2, parts=PEEPHOLES | {"initial_hidden"}), 1, np.float64, Cell("lstm"))
    stack = stack.replace(layers=(Layer(stack.layers[0].directions, "sum"),))
    module = rc.to_torch(stack, merge="concat", initial_state="call")
    x = np.random.default_rng(1).normal(size=(4, 2, 3))
    bare = stack.replace(layers=(Layer(tuple(
        d.with_arrays({("initial_hidden", ""): None}) for d in stack.layers[0].directions), "concat"),))  # fmt: skip
    assert near(plain(module(torch.tensor(x))[0]), reference.run(bare, x).y)
    turned = backwards(random_stack(Sizes("lstm", 3, 4, parts=PEEPHOLES), 1, np.float64), "processing")
    flipped = rc.to_torch(turned, output_order="time")
    assert near(plain(flipped(torch.tensor(x[::-1].copy()))[0]), reference.run(turned, x).y)


def test_what_nobody_knows_is_refused() -> None:
    stack = random_stack(Sizes("gru", 3, 4), 1, cell=Cell("gru", False, activation=Activation("mystery")))
    with pytest.raises(rc.RefusedError, match="mystery"):
        rc.to_torch(stack)
    unconvertible = random_stack(Sizes("gru", 3, 4), 1, cell=GRU_BEFORE).replace(
        unconvertible=(Unconvertible("initial_state", "a state made in the graph", "nodes make it"),)
    )
    with pytest.raises(rc.RefusedError, match="a state made in the graph"):
        rc.to_torch(unconvertible)
    assert type(rc.to_torch(unconvertible, initial_state="call")) is ForeignGRU


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"recurrent": 1, "layers": []}', "1" * 5000])
def test_what_is_no_outline_is_refused(text: str) -> None:
    with pytest.raises(rc.UsageError, match="not an outline"):
        module_of_text(text)


# Used as torch.nn's are -------------------------------------------------------------------------------


def lstm(dtype: Any = np.float32, layers: int = 2) -> Recurrent:
    parts = PEEPHOLES | {"projection", "initial_hidden", "initial_cell"}
    cell = Cell("lstm", clips=(Clip("cell", -0.5, 0.5),), constants={"f": 1.0})
    return random_stack(Sizes("lstm", 3, 4, layers, 2, 2, parts), 1, dtype, cell)


def gru(dtype: Any = np.float32) -> Recurrent:
    return random_stack(Sizes("gru", 3, 4, 2, 2), 1, dtype, GRU_BEFORE.replace(gate_activation=HARD_SIGMOID_KERAS_2))


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN:UserWarning")
def test_calls_attributes_and_shapes_are_torchs() -> None:
    ours, theirs = rc.to_torch(lstm()), torch.nn.LSTM(3, 4, 2, bidirectional=True, proj_size=2)
    for name in ("input_size", "hidden_size", "num_layers", "batch_first", "bidirectional", "proj_size", "bias", "dropout"):
        assert getattr(ours, name) == getattr(theirs, name), name
    shared = {name: tuple(p.shape) for name, p in theirs.named_parameters()}
    assert {name: tuple(p.shape) for name, p in ours.named_parameters() if name in shared} == shared
    x = torch.randn(TIME, BATCH, 3)
    hx = (torch.randn(4, BATCH, 2), torch.randn(4, BATCH, 4))
    for start in (None, hx):
        y, (h, c) = ours(x, start)
        wanted, (wanted_h, wanted_c) = theirs(x, start)
        assert (y.shape, h.shape, c.shape) == (wanted.shape, wanted_h.shape, wanted_c.shape)
        single, (single_h, single_c) = ours(x[:, 1], None if start is None else tuple(state[:, 1] for state in start))
        assert torch.allclose(single, y[:, 1]) and torch.allclose(single_h, h[:, 1]) and torch.allclose(single_c, c[:, 1])
        ours.batch_first = True
        first, (first_h, _) = ours(x.transpose(0, 1), start)
        ours.batch_first = False
        assert torch.equal(first, y.transpose(0, 1)) and torch.equal(first_h, h)
    ours.flatten_parameters()
    assert [len(weights) for weights in ours.all_weights] == [6] * 4


@pytest.mark.parametrize(
    ("x", "hx", "error"),
    [
        ((5, 2, 4), None, RuntimeError), ((3,), None, ValueError), ((5, 2, 3), (4, 3, 4), RuntimeError),
        ((5, 2, 3), (3, 2, 4), RuntimeError), ((5, 2, 3), (4, 2, 3), RuntimeError),
    ],
)  # fmt: skip
def test_wrong_shapes_are_refused_as_torch_refuses_them(x: Any, hx: Any, error: type[Exception]) -> None:
    for module in (rc.to_torch(gru()), torch.nn.GRU(3, 4, 2, bidirectional=True)):
        with pytest.raises(error):
            module(torch.zeros(x), None if hx is None else torch.zeros(hx))


def test_a_repr_says_what_is_computed() -> None:
    assert repr(rc.to_torch(gru())) == (
        "ForeignGRU(GRU (reset before), 2 layers, bidirectional, 3 -> 4, two biases, gates through hard_sigmoid(0.2, 0.5))"
    )
    mixed_directions = random_stack(Sizes("gru", 3, 4, 1, 2), 1, cell=GRU_BEFORE)
    first, second = mixed_directions.layers[0].directions
    mixed = mixed_directions.replace(layers=(Layer((first, second.replace(cell=Cell("gru", True)))),))
    assert "layer 0, backward: GRU (reset after)" in repr(rc.to_torch(mixed))


def test_a_module_is_copied_pickled_and_moved() -> None:
    module = rc.to_torch(lstm())
    x = torch.randn(TIME, BATCH, 3)
    wanted = module(x)[0]
    assert torch.equal(copy.deepcopy(module)(x)[0], wanted)
    assert torch.equal(pickle.loads(pickle.dumps(module))(x)[0], wanted)
    file = io.BytesIO()
    torch.save(module.state_dict(), file)
    file.seek(0)
    other = module_of_text(module.text)
    other.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(other(x)[0], wanted)
    half = copy.deepcopy(module).to(torch.bfloat16)
    assert half(x.to(torch.bfloat16))[0].dtype == torch.bfloat16
    meta = module.to("meta")
    assert meta(x.to("meta"))[0].shape == wanted.shape


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_an_element_type_is_kept_or_chosen(dtype: str) -> None:
    element_type = BFLOAT16 if dtype == "bfloat16" else np.dtype(dtype)
    stack = random_stack(Sizes("gru", 3, 4), 1, element_type, GRU_BEFORE)
    assert rc.to_torch(stack).weight_hh_l0.dtype == getattr(torch, dtype)
    back = rc.from_torch(rc.to_torch(stack)).first.arrays
    assert all(np.array_equal(np.asarray(back[key]), np.asarray(array)) for key, array in stack.first.arrays.items())
    assert rc.to_torch(random_stack(Sizes("gru", 3, 4), 1, np.float32, GRU_BEFORE), dtype).bias_ih_l0.dtype == getattr(torch, dtype)
    mixed = random_stack(Sizes("gru", 3, 4, 1, 2), 1, element_type, GRU_BEFORE)
    wide = {key: np.asarray(array).astype(np.float32) for key, array in mixed[0, 1].arrays.items()}
    mixed = mixed.replace(layers=(Layer((mixed.first, mixed[0, 1].replace(arrays=wide))),))
    with pytest.raises(rc.RefusedError, match="element types"):
        rc.to_torch(mixed)
    assert rc.to_torch(mixed, "float32").weight_hh_l0.dtype == torch.float32


def test_weights_of_another_layer_are_refused_both_ways() -> None:
    module = rc.to_torch(gru())
    theirs = torch.nn.GRU(3, 4, 2, bidirectional=True)
    with pytest.raises(RuntimeError, match="outline"):
        theirs.load_state_dict(module.state_dict())
    with pytest.raises(RuntimeError, match="outline"):
        module.load_state_dict(theirs.state_dict())
    other = rc.to_torch(random_stack(Sizes("gru", 3, 4, 2, 2), 1, np.float32, GRU_BEFORE))
    with pytest.raises(RuntimeError, match=r"another layer, GRU .* hard_sigmoid"):
        torch.nn.Sequential(other).load_state_dict(torch.nn.Sequential(module).state_dict())


@looped(8, seed=SEEDS)
def test_trained_weights_come_back(seed: int) -> None:
    module = module_of(Maker(seed).stack())
    x = torch.randn(TIME, BATCH, WIDTH, generator=torch.Generator().manual_seed(seed))
    optimizer = torch.optim.SGD(module.parameters(), 0.01)
    module(x)[0].square().mean().backward()
    optimizer.step()
    layer = rc.from_torch(module, "trained")
    case = Problem(layer, x.numpy())
    assert outline.to_text(layer) == module.text and layer.name == "trained"
    assert excess(case, solve(module, case)) <= 1


def test_parametrizations_are_applied_and_come_back() -> None:
    module = rc.to_torch(gru())
    torch.nn.utils.parametrizations.weight_norm(module, "weight_hh_l0")
    with torch.no_grad():
        module.parametrizations.weight_hh_l0.original0.mul_(2)
    back, before = rc.from_torch(module), gru()
    assert near(np.asarray(back.first.get("recurrent", "r")), 2 * np.asarray(before.first.get("recurrent", "r")), 1e-6)
    case = Problem(back, np.random.default_rng(0).normal(size=(4, 2, 3)).astype(np.float32))
    assert excess(case, solve(module, case)) <= 1


def test_a_module_is_not_copied_by_from_torch() -> None:
    module = rc.to_torch(gru())
    layer = rc.from_torch(module)
    with torch.no_grad():
        module.weight_hh_l0[0, 0] = 42.0
    assert layer[0, 0].gates["r"].recurrent[0, 0] == 42.0


# Files ----------------------------------------------------------------------------------------------


def saved(folder: Path) -> dict[str, Path]:
    from safetensors.torch import save_file

    module = rc.to_torch(gru())
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), module)
    torch.save(module.state_dict(), folder / "state.pt")
    torch.save(module.state_dict(), folder / "old.pt", _use_new_zipfile_serialization=False)
    torch.save(module, folder / "whole.pt")
    torch.save(model.state_dict(), folder / "inside.pt")
    save_file(module.state_dict(), folder / "state.safetensors")
    return {path.name: path for path in folder.iterdir()}


@pytest.mark.parametrize("name", ["state.pt", "old.pt", "whole.pt", "inside.pt", "state.safetensors"])
def test_a_file_is_read_as_what_it_is_and_never_as_torchs_own(name: str, tmp_path: Path) -> None:
    loaded = rc.load(saved(tmp_path)[name])
    ((prefix, layer),) = loaded.layers.items()
    assert prefix == ("1" if name == "inside.pt" else "")
    assert outline.to_text(layer) == rc.to_torch(gru()).text
    assert len(loaded.tensors) == (2 if name == "inside.pt" else 0) and not loaded.warnings
    with pytest.raises(rc.RefusedError, match="reset gate before"):
        rc.save(loaded, tmp_path / "out.pt")


def test_a_file_whose_outline_is_of_other_weights_is_unreadable(tmp_path: Path) -> None:
    module = rc.to_torch(gru())
    weights = module.state_dict()
    torch.save({name: value for name, value in weights.items() if name != "weight_hh_l1"}, tmp_path / "short.pt")
    torch.save({**weights, "weight_hh_l1": torch.zeros(12, 5)}, tmp_path / "wide.pt")
    broken = torch.frombuffer(bytearray(module.text.replace("gru", "gnu").encode()), dtype=torch.uint8)
    torch.save({**weights, "outline": broken}, tmp_path / "broken.pt")
    for name in ("short", "wide", "broken"):
        with pytest.raises(rc.UnreadableError):
            rc.load(tmp_path / f"{name}.pt")
    torch.save({"glyph.outline": torch.zeros(9, dtype=torch.uint8)}, tmp_path / "glyph.pt")
    assert not rc.load(tmp_path / "glyph.pt").layers


# Compilers ------------------------------------------------------------------------------------------

SCRIPTED = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # TorchScript is deprecated, and still about


@SCRIPTED
@looped(8, seed=SEEDS)
def test_torchscript_computes_the_same(seed: int, tmp_path: Path) -> None:
    case = problem(Maker(seed, dtype="float64").stack(), seed, bool(seed % 2))
    module = module_of(case.stack)
    if any(len(set(widths)) > 1 for widths in module.widths):
        with pytest.raises(rc.RefusedError, match="different widths"):
            torch.jit.script(module)
        return
    torch.jit.save(torch.jit.script(module), tmp_path / "scripted.pt")
    scripted = torch.jit.load(tmp_path / "scripted.pt")
    assert all_near(solve(scripted, case), case.solved())
    x = torch.tensor(case.x)[:, 0]
    assert torch.allclose(scripted(x)[0], module(x)[0])
    (layer,) = rc.load(tmp_path / "scripted.pt").layers.values()
    assert outline.to_text(layer) == module.text


@SCRIPTED
def test_a_scripted_module_keeps_its_names_and_moves() -> None:
    module = torch.nn.Sequential(rc.to_torch(gru()))
    scripted = torch.jit.script(module)
    assert scripted.state_dict().keys() == module.state_dict().keys()
    x = torch.randn(TIME, BATCH, 3).double()
    assert type(module[0]) is ForeignGRU and torch.equal(pickle.loads(pickle.dumps(module)).double()(x)[0], module.double()(x)[0])
    assert torch.allclose(scripted.double()(x)[0], module(x)[0])
    with torch.no_grad():
        scripted[0].weight_hh_l0.zero_()
    assert not torch.allclose(scripted(x)[0], copy.deepcopy(rc.to_torch(gru())).double()(x)[0])


BACKENDS = ["eager", "aot_eager", *(["inductor"] if LONG and shutil.which("gcc") else [])]
"""Inductor's C++ compiler takes half a minute for each case."""


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
@pytest.mark.drawn(2)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("make", [gru, lambda dtype: lstm(dtype, layers=1)], ids=["gru", "lstm"])
def test_torch_compile_makes_one_graph_with_the_same_gradients(make: Any, backend: str) -> None:
    torch.compiler.reset()
    stack = make(np.float64)
    if backend == "inductor":  # its compiler takes long
        stack = stack.replace(layers=(Layer(stack.layers[0].directions[:1]),))
    module = rc.to_torch(stack)
    compiled = torch.compile(copy.deepcopy(module), backend=backend, fullgraph=True)
    x = torch.randn(3, 2, 3, dtype=torch.float64)
    y, wanted = compiled(x)[0], module(x)[0]
    assert torch.allclose(y, wanted, rtol=0, atol=1e-12)
    y.sum().backward()
    wanted.sum().backward()
    slopes = {name.removeprefix("_orig_mod."): parameter.grad for name, parameter in compiled.named_parameters()}
    for name, parameter in module.named_parameters():
        assert torch.allclose(slopes[name], parameter.grad, rtol=0, atol=1e-12), name


def test_plain_parts_only() -> None:
    bare = random_stack(Sizes("gru", 3, 4, parts=PLAIN), 1, np.float32, GRU_BEFORE)
    assert [*rc.to_torch(bare).state_dict()] == ["weight_ih_l0", "weight_hh_l0", "outline"]


def test_a_whole_module_is_refused_with_what_writes_it() -> None:
    with pytest.raises(rc.UsageError, match=r"Sequential is not a torch\.nn\.RNN.*or write all of it with rnnconvert\.export_model"):
        rc.from_torch(torch.nn.Sequential(torch.nn.Linear(2, 3)))
