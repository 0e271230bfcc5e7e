"""Plain pickles of weights, as people save trees and state dictionaries: read as data, by the names of the arrays."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.containers import pickled_arrays
from rnnconvert.core import reference
from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import BudgetError, UnreadableError
from rnnconvert.formats.paddle import paddle_params
from tests.helpers.requirements import needed
from tests.helpers.sources import stack, write

X = np.random.default_rng(0).uniform(-1, 1, (5, 2, 3)).astype(np.float32)


def pickled(value: Any, path: Path, protocol: int = 4) -> Path:
    path.write_bytes(pickle.dumps(value, protocol))
    return path


def only(path: Path, **options: Any) -> reference.Outputs:
    """What the only layer of a file gives."""
    (layer,) = rc.load(path, **options).layers.values()
    return reference.run(layer, X)


def arrays_of(path: Path) -> dict[str, Array]:
    with np.load(path) as archive:
        return dict(archive)


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("under", ["", "model"])
def test_torchs_numbers_as_numpys_arrays(tmp_path: Path, under: str, protocol: int) -> None:
    torch = needed("torch", "torch")
    layer = torch.nn.GRU(3, 4)
    state = {f"rnn.{name}": tensor.detach().numpy() for name, tensor in layer.named_parameters()}
    path = pickled({under: state, "epoch": 3} if under else state, tmp_path / "m.pkl", protocol)
    checkpoint = rc.load(path)
    assert (checkpoint.format, list(checkpoint.layers)) == ("pytorch", [f"{under}.rnn".lstrip(".")])
    with torch.no_grad():
        np.testing.assert_allclose(only(path).y, layer(torch.tensor(X))[0].numpy(), atol=1e-6)


@pytest.mark.parametrize("module", [False, True])
def test_torchs_own_tensors(tmp_path: Path, module: bool) -> None:
    torch = needed("torch", "torch")
    model = torch.nn.Sequential(torch.nn.LSTM(3, 4, batch_first=True))
    path = pickled(model if module else model.state_dict(), tmp_path / "m.pkl")
    checkpoint = rc.load(path)
    assert (checkpoint.format, list(checkpoint.layers)) == ("pytorch", ["0"])
    assert checkpoint.batch_first == ({"0": True} if module else {})
    with torch.no_grad():
        y = model(torch.tensor(X.swapaxes(0, 1)))[0].numpy()
    np.testing.assert_allclose(only(path).y.swapaxes(0, 1), y, atol=1e-6)

    big = {"seen": np.zeros(30_000), "model": model.state_dict()}
    assert list(rc.load(pickled(big, tmp_path / "big.pkl")).layers) == ["0"]


@pytest.mark.parametrize("protocol", range(6))
def test_tensors_of_every_protocol(tmp_path: Path, protocol: int) -> None:
    torch = needed("torch", "torch")
    layer = torch.nn.GRU(3, 4)
    with torch.no_grad():
        y = layer(torch.tensor(X))[0].numpy()
    np.testing.assert_allclose(only(pickled(layer.state_dict(), tmp_path / "m.pkl", protocol)).y, y, atol=1e-6)


@pytest.mark.parametrize("numbers", [False, True])
def test_trees_of_jax(tmp_path: Path, numbers: bool) -> None:
    jax, nn = needed("flax", "jax"), needed("flax", "flax.linen")
    cell = nn.RNN(nn.GRUCell(4))
    tree = cell.init(jax.random.PRNGKey(0), X.swapaxes(0, 1))
    path = pickled(jax.tree.map(np.asarray, tree) if numbers else tree, tmp_path / "m.pkl")
    assert rc.load(path).format == "flax"
    y = np.asarray(cell.apply(tree, X.swapaxes(0, 1)))
    np.testing.assert_allclose(only(path).y.swapaxes(0, 1), y, atol=1e-6)


def test_haikus_parameters(tmp_path: Path) -> None:
    jax, hk = needed("haiku", "jax"), needed("haiku", "haiku")

    def model(x: Any) -> Any:
        core = hk.LSTM(4)
        return hk.dynamic_unroll(core, x, core.initial_state(2))[0]

    net = hk.without_apply_rng(hk.transform(model))
    tree = net.init(jax.random.PRNGKey(0), X)
    path = pickled(tree, tmp_path / "m.pkl")
    assert rc.load(path).format == "haiku"
    np.testing.assert_allclose(only(path).y, np.asarray(net.apply(tree, X)), atol=1e-6)


def test_moments_are_no_weights(tmp_path: Path) -> None:
    jax, nn = needed("flax", "jax"), needed("flax", "flax.linen")
    optax = needed("flax", "optax")
    cell = nn.RNN(nn.GRUCell(4))
    tree = cell.init(jax.random.PRNGKey(0), X.swapaxes(0, 1))
    for optimizer in (optax.adam(0.1), optax.sgd(0.1, momentum=0.9)):
        path = pickled((tree, optimizer.init(tree)), tmp_path / "m.pkl")
        checkpoint = rc.load(path)
        assert list(checkpoint.layers) == ["arr_0/params/cell"]
        assert any(name.startswith("arr_1/") for name in checkpoint.tensors)
        y = np.asarray(cell.apply(tree, X.swapaxes(0, 1)))
        np.testing.assert_allclose(only(path).y.swapaxes(0, 1), y, atol=1e-6)


def test_trees_of_bfloat16(tmp_path: Path) -> None:
    jax, nn = needed("flax", "jax"), needed("flax", "flax.linen")
    cell = nn.RNN(nn.GRUCell(4))
    tree = jax.tree.map(lambda leaf: leaf.astype("bfloat16"), cell.init(jax.random.PRNGKey(0), X.swapaxes(0, 1)))
    for protocol, value in enumerate([tree, tree, jax.tree.map(np.asarray, tree), tree, tree, tree]):
        assert list(rc.load(pickled(value, tmp_path / "m.pkl", protocol)).layers) == ["params/cell"]
        arrays = pickled_arrays.read(tmp_path / "m.pkl").arrays
        flat = {"/".join(key): np.asarray(leaf) for key, leaf in _flat(tree)}
        assert all(np.array_equal(arrays[name], leaf) for name, leaf in flat.items()) and len(arrays) == len(flat)


def _flat(tree: Any, above: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    if not hasattr(tree, "items"):
        return [(above, tree)]
    return [leaf for key, inner in tree.items() for leaf in _flat(inner, (*above, key))]


@pytest.mark.parametrize(("format", "shape"), [("lasagne", lambda arrays: list(arrays.values())), ("tensorflow1", dict)])
def test_the_same_as_an_archive(tmp_path: Path, format: str, shape: Callable[[dict[str, Array]], object]) -> None:
    archive = write(tmp_path / "m.npz", stack(), target_format=format)
    path = pickled(shape(arrays_of(archive)), tmp_path / "m.pkl", 0 if format == "lasagne" else 2)
    assert rc.load(path).format == format
    assert np.array_equal(only(path).y, only(archive).y)


def test_paddles_own_files_stay_paddles(tmp_path: Path) -> None:
    path = write(tmp_path / "m.pdparams", stack())
    assert rc.load(path).format == "paddle"
    tree = {name: np.asarray(array) for name, array in paddle_params.read(path).arrays.items()}
    named = pickled({**tree, paddle_params.NAMES: dict.fromkeys(tree, "x")}, tmp_path / "m.pkl")
    assert rc.load(named).format == "paddle"
    assert rc.load(pickled(tree, tmp_path / "cells.pkl")).format == "paddle"
    plain = pickled({name: array for name, array in tree.items() if "cell" not in name}, tmp_path / "plain.pkl")
    assert rc.load(plain).format == "pytorch"
    assert np.array_equal(only(plain).y, only(plain, source_format="paddle").y)


class Evil:
    def __reduce__(self) -> Any:
        return eval, ("open('ran', 'w').close()",)


class Holder:
    """An object of a script's own."""

    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


def test_nothing_runs_and_what_is_no_array_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    state = {"w": np.ones((2, 3), np.float32), "holder": Holder(inner=[np.zeros(2)], name="x"), "odd": Holder(name="y")}
    stored = pickled_arrays.read(pickled(state, tmp_path / "m.pkl"))
    assert sorted(stored.arrays) == ["holder/inner/0", "w"]
    assert list(stored.metadata["unreadable"]) == ["odd"] and "Holder" in stored.metadata["unreadable"]["odd"]
    with pytest.raises(UnreadableError):
        rc.load(pickled({**state, "evil": Evil()}, tmp_path / "evil.pkl"))
    assert not (tmp_path / "ran").exists()


class Slots:
    """An object whose state is a list, as that of a dataclass with slots."""

    def __init__(self, *values: Any) -> None:
        self.values = list(values)

    def __getstate__(self) -> Any:
        return self.values

    def __setstate__(self, state: Any) -> None: ...


class Named(NamedTuple):
    first: Any
    second: Any


class Custom(dict[str, Any]):
    """A script's own kind of dictionary."""


ONES, TWOS = np.ones(3, np.float32), np.full(2, 2.0)


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize(
    ("value", "names"),
    [
        ({("a", 1): ONES, b"b": TWOS, None: ONES}, ["None", "a/1", "b"]),
        ({1 << 80: ONES, (1, "2"): TWOS, (1, (2, 3)): TWOS}, ["1/2", "<0>", "<2>"]),
        (Named(ONES, {"b": TWOS}), ["0", "1/b"]),
        ({"a": Named(ONES, (TWOS,))}, ["a/0", "a/1/0"]),
        (Custom(a=ONES), ["a"]),
        ({"a": np.array([{"b": ONES}, TWOS], object)}, ["a/0/b", "a/1"]),
        ({"a": Slots(ONES, {"b": TWOS})}, ["a/0", "a/1/b"]),
    ],
)
def test_every_array_has_its_path(tmp_path: Path, value: Any, names: list[str], protocol: int) -> None:
    if isinstance(value, Named) and protocol < 2:  # its state is a plain tuple there
        protocol = 2
    assert sorted(pickled_arrays.read(pickled(value, tmp_path / "m.pkl", protocol)).arrays) == names


def test_pickles_after_one_another(tmp_path: Path) -> None:
    content = pickle.dumps({"a": ONES})
    (tmp_path / "two.pkl").write_bytes(content + pickle.dumps({"a": TWOS}))
    assert list(pickled_arrays.read(tmp_path / "two.pkl").arrays) == ["arr_0/a", "arr_1/a"]
    (tmp_path / "more.pkl").write_bytes(content + b"hello")
    with pytest.raises(UnreadableError, match="5 bytes follow its pickle"):
        rc.load(tmp_path / "more.pkl")


def test_what_is_wrong_with_a_pickle_is_said(tmp_path: Path) -> None:
    content = pickle.dumps({"rnn.weight_ih_l0": ONES})
    (tmp_path / "cut.pkl").write_bytes(content[:-20])
    with pytest.raises(UnreadableError, match="its pickle is"):
        rc.load(tmp_path / "cut.pkl")
    (tmp_path / "text.txt").write_text("cell\nwords and words\n")
    with pytest.raises(UnreadableError, match="text of no known format"):
        rc.load(tmp_path / "text.txt")
    (tmp_path / "m.joblib").write_bytes(b"\x80\x04}\x8c\x01acjoblib.numpy_pickle\nNumpyArrayWrapper\n)\x81]b\x00\x00.")
    with pytest.raises(UnreadableError, match="without a description"):
        rc.load(tmp_path / "m.joblib")
    with pytest.raises(UnreadableError, match="not valid text"):
        rc.load(pickled({"a\ud800": ONES}, tmp_path / "odd.pkl"))


def test_names_that_become_one_are_refused(tmp_path: Path) -> None:
    tree = {"rnn": {"weight_ih_l0": np.ones((4, 3))}, "rnn.weight_ih_l0": np.zeros((4, 3)), "b": [TWOS]}
    with pytest.raises(UnreadableError, match=r"called 'rnn\.weight_ih_l0'"):
        rc.load(pickled(tree, tmp_path / "m.pkl"), source_format="pytorch")


def test_lists_in_one_another_take_no_time(tmp_path: Path) -> None:
    twice: Any = [np.ones(1)]
    for _ in range(60):
        twice = [twice, twice]
    with pytest.raises(BudgetError):
        pickled_arrays.read(pickled({"a": twice}, tmp_path / "m.pkl"))
    deep: Any = np.ones(1)
    for _ in range(100):
        deep = [deep]
    with pytest.raises(UnreadableError, match="nested more than 64 deep"):
        pickled_arrays.read(pickled({"a": deep}, tmp_path / "m.pkl"))
    itself: list[Any] = []
    itself.append(itself)
    with pytest.raises(UnreadableError, match="nested more than 64 deep"):
        pickled_arrays.read(pickled({"a": itself}, tmp_path / "m.pkl"))


def test_one_array_twice_under_a_name_is_one(tmp_path: Path) -> None:
    # NumPy pickles the state of a RandomState twice, and scikit-learn's models have one.
    path = pickled({"model": {"random": np.random.RandomState(0), "w": X[0]}}, tmp_path / "m.pkl")
    with pytest.raises(UnreadableError, match="without arrays named as those of a recurrent layer"):
        rc.convert(path, tmp_path / "m.onnx")


def test_two_arrays_of_one_path_are_refused(tmp_path: Path) -> None:
    tree = {"a": {"b": np.ones(2)}, "a/b": np.zeros(2)}
    with pytest.raises(UnreadableError, match="two things in it have the name 'a/b'"):
        pickled_arrays.read(pickled(tree, tmp_path / "m.pkl"))


def test_a_pickle_of_something_else(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match="a pickle without arrays named as those of a recurrent layer"):
        rc.load(pickled({"words": ["a", "b"]}, tmp_path / "m.pkl"))
