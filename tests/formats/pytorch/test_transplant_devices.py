"""Modules on another device than the CPU: the target's numbers stay there, and the source's are copied once.

The device is a stand-in: tensors that say that they are elsewhere, and count how often each is copied to the CPU.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import rnnconvert as rc
from rnnconvert.core.arrays import Deferred
from rnnconvert.core.cells import Cell
from rnnconvert.core.errors import UsageError
from rnnconvert.core.weights import Direction, Layer, Recurrent
from rnnconvert.models.readers import model_of
from tests.helpers.requirements import needed

COPIES: Counter[int] = Counter()
"""How often the numbers at an address were copied to the CPU."""


class Elsewhere(torch.Tensor):
    """A tensor on a device that is not there."""

    device = property(lambda self: torch.device("cuda", 0))

    def cpu(self) -> Any:
        """Return a copy on the CPU, as every device but the CPU does."""
        COPIES[self.data_ptr()] += 1
        return self.as_subclass(torch.Tensor).clone()


def elsewhere(module: Any, kind: Any = Elsewhere) -> Any:
    """Put a module's parameters and buffers on the stand-in device; those that are one stay one."""
    moved: dict[int, Any] = {}
    for owner in module.modules():
        for name, parameter in list(owner._parameters.items()):
            if parameter is not None:
                there = moved.setdefault(id(parameter), nn.Parameter(parameter.detach().as_subclass(kind)))
                setattr(owner, name, there)
        for name, buffer in list(owner._buffers.items()):
            if buffer is not None:
                owner._buffers[name] = buffer.as_subclass(kind)
    return module


def tensors(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, dict) else dict(value.state_dict())


def numbers(value: Any) -> dict[str, Any]:
    """Return a copy of the numbers of a module or a state dictionary, and count nothing."""
    return {name: tensor.detach().as_subclass(torch.Tensor).clone() for name, tensor in tensors(value).items()}


def copies(value: Any) -> list[int]:
    """Return how often each tensor was copied to the CPU."""
    return [COPIES[tensor.data_ptr()] for tensor in tensors(value).values()]


@pytest.fixture(autouse=True)
def nothing_copied() -> None:
    COPIES.clear()


class Addressless(Elsewhere):
    """A tensor on a device that does not tell where in its memory anything lies, as XLA's."""

    def data_ptr(self) -> int:
        """Return no address."""
        return 0

    def untyped_storage(self) -> Any:
        """Return a storage without an address."""
        return SimpleNamespace(data_ptr=lambda: 0)


class Tagger(nn.Module):
    """Layers of several kinds around stacks of two classes."""

    def __init__(self, kind: str = "float32", tied: bool = False) -> None:
        super().__init__()
        self.words = nn.Embedding(11, 8)
        self.conv = nn.Conv1d(8, 8, 3, padding=1)
        self.norm = nn.BatchNorm1d(8)
        self.encoder = nn.LSTM(8, 4, num_layers=2, bidirectional=True, batch_first=True)
        self.decoder = nn.GRUCell(8, 8)
        self.head = nn.Linear(8, 11, bias=False)
        if tied:
            self.head.weight = self.words.weight
        self.to(getattr(torch, kind))


class Ours(nn.Module):
    """A layer of rnnconvert's own, which torch.nn does not have."""

    def __init__(self) -> None:
        super().__init__()
        cell = Cell("gru", reset_after=False)
        shapes = {"input": (5, 3), "recurrent": (5, 5), "input_bias": (5,)}
        rng = np.random.default_rng(3)
        arrays = {(part, gate): rng.normal(size=shape).astype(np.float32) for part, shape in shapes.items() for gate in "zrn"}
        self.layer = rc.to_torch(Recurrent("layer", (Layer((Direction(cell, arrays),)),)))
        self.head = nn.Linear(5, 2)


MODULES: dict[str, Callable[[], Any]] = {
    "layers of several kinds": Tagger,
    "half precision": lambda: Tagger("bfloat16"),
    "tied weights": lambda: Tagger(tied=True),
    "rnnconvert's own": Ours,
    "one layer": lambda: nn.RNN(3, 4),
}


def drawn(make: Callable[[], Any], seed: int) -> Any:
    torch.manual_seed(seed)
    module = make()
    with torch.no_grad():
        for tensor in module.state_dict().values():
            if tensor.is_floating_point():
                tensor.copy_(torch.rand_like(tensor) + 0.5)
    return module


def same(first: dict[str, Any], second: dict[str, Any]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("as_a", ["module", "state dictionary"])
@pytest.mark.parametrize("name", MODULES)
def test_no_number_of_the_target_is_copied_and_each_of_the_source_once(name: str, as_a: str) -> None:
    theirs, mine, plain = (drawn(MODULES[name], seed) for seed in (1, 2, 2))
    wanted = numbers(rc.load_into(plain, copy.deepcopy(theirs)).model)
    source, target = elsewhere(theirs), elsewhere(mine)
    if as_a == "state dictionary":
        source, target = source.state_dict(), target.state_dict()
    rc.load_into(target, source)
    assert same(numbers(target), wanted)
    # An outline is no number of the layer: it says what the layer of a state dictionary is.
    outlines = sum(key.endswith("outline") for key in tensors(target))
    assert sum(copies(target)) <= outlines
    assert max(copies(source)) == 1


@pytest.mark.parametrize("name", MODULES)
def test_a_file_fills_a_target_whose_numbers_are_not_read(name: str, tmp_path: Path) -> None:
    source, target = (drawn(MODULES[name], seed) for seed in (1, 2))
    torch.save(source.state_dict(), path := tmp_path / "source.pt")
    rc.load_into(elsewhere(target), path)
    assert same(numbers(target), numbers(source))
    assert not COPIES


@pytest.mark.parametrize("name", MODULES)
def test_a_module_filled_from_itself_keeps_its_numbers(name: str) -> None:
    module = elsewhere(drawn(MODULES[name], 1))
    before = numbers(module)
    rc.load_into(module, module)
    assert same(numbers(module), before)


@pytest.mark.parametrize("as_a", ["module", "state dictionary"])
@pytest.mark.parametrize("name", MODULES)
def test_tensors_without_an_address_are_not_taken_for_one_another(name: str, as_a: str) -> None:
    source, target = (elsewhere(drawn(MODULES[name], seed), Addressless) for seed in (1, 2))
    wanted = numbers(source)
    pair = (target, source) if as_a == "module" else (target.state_dict(), source.state_dict())
    rc.load_into(*pair)
    assert same(numbers(target), wanted)


UNHELD: dict[str, Callable[[Any], Any]] = {
    "sparse_coo": lambda tensor: tensor.to_sparse(),
    "float8_e4m3fn": lambda tensor: tensor.to(torch.float8_e4m3fn),
}


@pytest.mark.parametrize("kind", UNHELD)
@pytest.mark.parametrize("side", ["source", "target"])
def test_tensors_that_numpy_does_not_hold_are_refused_by_name(kind: str, side: str) -> None:
    state = dict(nn.GRU(3, 4).state_dict())
    state["weight_hh_l0"] = UNHELD[kind](state["weight_hh_l0"])
    module = nn.GRU(3, 4)
    with pytest.raises(UsageError, match=f"'weight_hh_l0' is .*{kind}.* Convert it with "):
        rc.load_into(*((module, state) if side == "source" else (state, module)))


def test_a_view_with_its_sign_turned_is_read_as_it_counts() -> None:
    """The imaginary part of a conjugate is such a view, whose memory holds the other sign."""
    state, target = dict(nn.GRU(3, 4).state_dict()), nn.GRU(3, 4)
    weight = state["weight_hh_l0"]
    state["weight_hh_l0"] = torch.complex(torch.zeros_like(weight), -weight).conj().imag
    assert state["weight_hh_l0"].is_neg()
    rc.load_into(target, state)
    assert torch.equal(target.weight_hh_l0, weight)
    rc.load_into(state, nn.GRU(3, 4))
    assert state["weight_hh_l0"].is_neg() and not torch.equal(state["weight_hh_l0"], weight)
    rc.load_into(state, target)
    assert torch.equal(state["weight_hh_l0"], weight)


def test_a_state_dictionary_whose_weights_are_made_of_others_cannot_be_filled() -> None:
    target = nn.LSTM(3, 4)
    needed("torch", "torch.nn.utils.prune").l1_unstructured(target, "weight_hh_l0", 0.5)
    before = numbers(target)
    with pytest.raises(rc.TransplantError, match="'weight_hh_l0' is kept in other tensors"):
        rc.load_into(target.state_dict(), nn.LSTM(3, 4))
    assert same(numbers(target), before)


def test_layers_that_exchange_their_memory_exchange_their_numbers() -> None:
    """The source's first layer is the target's second one, and the other way round."""
    first, second = (elsewhere(drawn(lambda: nn.LSTM(4, 4), seed)) for seed in (1, 2))
    before = numbers(first), numbers(second)
    target, source = (nn.ModuleDict(dict(zip("ab", layers, strict=True))) for layers in ((first, second), (second, first)))
    rc.load_into(target, source, {"a": "a", "b": "b"})
    assert same(numbers(first), before[1])
    assert same(numbers(second), before[0])


def test_on_an_error_the_target_is_as_it_was_and_unread() -> None:
    source, target = elsewhere(drawn(Tagger, 1)), elsewhere(drawn(Tagger, 2))
    target.head = elsewhere(nn.Linear(8, 12, bias=False))
    before = numbers(target)
    with pytest.raises(rc.TransplantError):
        rc.load_into(target, source)
    assert same(numbers(target), before)
    assert not any(copies(target))


def test_a_failure_while_filling_puts_everything_back(monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = elsewhere(drawn(Tagger, 1)), elsewhere(drawn(Tagger, 2))
    before, original = numbers(target), Elsewhere.copy_
    last = target.head.weight.data_ptr()

    def failing(self: Any, values: Any) -> Any:
        original(self, values)
        if self.data_ptr() == last and not same(numbers(target), before):
            monkeypatch.undo()
            raise MemoryError
        return self

    monkeypatch.setattr(Elsewhere, "copy_", failing)
    with pytest.raises(MemoryError):
        rc.load_into(target, source)
    assert same(numbers(target), before)


def test_tied_weights_stay_tied() -> None:
    source, target = elsewhere(drawn(lambda: Tagger(tied=True), 1)), elsewhere(drawn(lambda: Tagger(tied=True), 2))
    rc.load_into(target, source)
    assert target.head.weight is target.words.weight
    assert same(numbers(target), numbers(source))


@pytest.mark.parametrize("how", ["weight norm", "spectral norm", "pruning"])
def test_weights_that_are_kept_in_others_are_computed_from_what_is_read(how: str) -> None:
    """A state dictionary in which other tensors stand for a weight gives the same as on the CPU."""
    module = drawn(lambda: nn.LSTM(3, 4), 1)
    v = module.weight_hh_l0.detach().clone()
    extra = {
        "weight norm": {"weight_hh_l0_v": v, "weight_hh_l0_g": v.norm(dim=1, keepdim=True) * 2},
        "spectral norm": {"weight_hh_l0_orig": v, "weight_hh_l0_u": torch.full((16,), 0.25), "weight_hh_l0_v": torch.full((4,), 0.5)},
        "pruning": {"weight_hh_l0_orig": v, "weight_hh_l0_mask": (v > 1).to(v.dtype)},
    }[how]
    state = {name: tensor for name, tensor in module.state_dict().items() if name != "weight_hh_l0"} | extra
    on_cpu, target = nn.LSTM(3, 4), nn.LSTM(3, 4)
    rc.load_into(on_cpu, state)
    rc.load_into(target, {name: tensor.as_subclass(Elsewhere) for name, tensor in state.items()})
    assert same(numbers(target), numbers(on_cpu))
    assert max(COPIES.values()) == 1


def test_a_module_of_ours_gives_what_pruning_makes_of_its_weights() -> None:
    source, target = (elsewhere(drawn(Ours, seed)) for seed in (1, 2))
    needed("torch", "torch.nn.utils.prune").l1_unstructured(source.layer, "weight_hh_l0", 0.5)
    rc.load_into(target, source, strict=False)
    assert same({"pruned": numbers(target)["layer.weight_hh_l0"]}, {"pruned": source.layer.weight_hh_l0.as_subclass(torch.Tensor)})
    assert not numbers(target)["layer.weight_hh_l0"].all()


def test_a_layer_that_was_taken_out_of_a_module_stays_as_it_was() -> None:
    """`from_torch` reads at once: the module may be trained on."""
    module = elsewhere(drawn(lambda: nn.GRU(3, 4), 1))
    layer = rc.from_torch(module)
    before = np.array(layer.first.arrays["recurrent", "r"])
    with torch.no_grad():
        module.weight_hh_l0.zero_()
    assert np.array_equal(layer.first.arrays["recurrent", "r"], before)


def test_an_array_that_is_copied_is_another_one() -> None:
    """What is read once is kept: numpy.array, which promises a copy, must not give that away to be written over."""
    array = model_of(elsewhere(drawn(lambda: nn.GRU(3, 4), 1))).arrays["bias_hh_l0"]
    assert isinstance(array, Deferred)
    before = np.asarray(array).copy()
    np.array(array)[...] = 0
    assert np.array_equal(np.asarray(array), before)


def test_a_pruned_layer_is_given_as_its_state_dictionary() -> None:
    torch = needed("torch", "torch")
    source, target = torch.nn.GRU(3, 4), torch.nn.GRU(3, 4)
    needed("torch", "torch.nn.utils.prune").l1_unstructured(source, "weight_hh_l0", 0.5)
    for call in (lambda: rc.from_torch(source), lambda: rc.load_into(target, source)):
        with pytest.raises(rc.UsageError, match=r"weight_hh_l0_mask, .*give the model's state_dict\(\) in its place"):
            call()
    rc.load_into(target, source.state_dict())
    x = torch.ones(5, 2, 3)
    torch.testing.assert_close(target(x)[0], source(x)[0])
