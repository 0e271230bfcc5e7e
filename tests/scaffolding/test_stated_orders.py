"""Weights alone in a stated order: what their file says of a layer besides its weights holds in the whole model, too."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core import reference
from rnnconvert.core.weights import Merge
from rnnconvert.scaffolding import ordered
from tests.helpers import corpus
from tests.helpers.commands import call
from tests.helpers.drawn import drawn
from tests.helpers.drawn import each as drawn_each
from tests.helpers.exported import RUNS
from tests.helpers.requirements import need, needed
from tests.helpers.sources import checkpoint, stack


@pytest.mark.parametrize("merge", ["concat", "sum", "mul", "ave"])
def test_two_directions_are_joined_as_the_file_says(merge: Merge, tmp_path: Path) -> None:
    both = stack("lstm", num_directions=2, name="encoder")
    both = both.replace(layers=(replace(both.layers[0], merge=merge),))
    rc.save(checkpoint(both), tmp_path / "a.zip", "dl4j")
    rc.export_model(tmp_path / "a.zip", tmp_path / "a.onnx")
    x = np.random.default_rng(1).normal(size=(7, 3, both.input_size)).astype(np.float32)
    (y,) = RUNS["onnx"](tmp_path / "a.onnx")([x.transpose(1, 2, 0)])
    np.testing.assert_allclose(y.transpose(2, 0, 1), reference.run(both, x).y, rtol=1e-4, atol=1e-6)


def test_a_layer_that_reads_from_the_end_gives_its_steps_in_the_order_of_time(tmp_path: Path) -> None:
    layer = stack("gru", name="back")
    way = layer.first.replace(reverse=True)
    layer = layer.replace(layers=(replace(layer.layers[0], directions=(way,)),))
    rc.save(checkpoint(layer), tmp_path / "a.param", "ncnn")
    rc.export_model(tmp_path / "a.param", tmp_path / "a.onnx")
    x = np.random.default_rng(1).normal(size=(7, 3, layer.input_size)).astype(np.float32)
    y, _ = RUNS["onnx"](tmp_path / "a.onnx")([x.transpose(1, 0, 2)])
    np.testing.assert_allclose(y.transpose(1, 0, 2), reference.run(layer, x).y, rtol=1e-4, atol=1e-6)


def test_a_network_says_what_it_leaves_open(tmp_path: Path) -> None:
    need("corpus", corpus.absent())
    source = corpus.FOLDER / "dl4j-regression" / "060_ModelSerializer_Regression_CG_LSTM_1.zip"
    result = call("convert", source, tmp_path / "a.onnx")
    assert result.exit_code == 0 and "left out: 2 (MatMul, 4 x 5)" in result.stderr and "the whole model" in result.stderr
    result = call("export", source, tmp_path / "b.onnx")
    assert result.exit_code == 0 and "recurrent_activation=sigmoid" in result.stderr


def test_an_order_is_proposed_without_a_lone_vector_and_in_words_that_speak(tmp_path: Path) -> None:
    """As the spread of a policy: it is named as left out, and not offered as if it were nothing. Two vectors may be a norm's."""
    torch = needed("torch", "torch")
    n = torch.nn
    layers = n.ModuleDict({"rnn": n.LSTM(3, 4), "head": n.ModuleDict({"net": n.Sequential(n.Linear(4, 2))})})
    layers.register_parameter("std", torch.nn.Parameter(torch.ones(2)))
    torch.save(layers.state_dict(), tmp_path / "policy.pt")
    with pytest.raises(ordered.UnstatedOrderError) as caught:
        rc.export_model(tmp_path / "policy.pt", tmp_path / "policy.onnx")
    assert caught.value.orders == ("rnn net.0",) and not caught.value.single
    assert "'std' left out" in str(caught.value)
    assert rc.export_model(tmp_path / "policy.pt", tmp_path / "policy.onnx", chain="rnn net.0").nodes
    layers["norm"] = torch.nn.LayerNorm(2)
    torch.save(layers.state_dict(), tmp_path / "policy.pt")
    with pytest.raises(ordered.UnstatedOrderError) as caught:
        rc.export_model(tmp_path / "policy.pt", tmp_path / "other.onnx")
    assert caught.value.orders == ()


def chains(torch: Any) -> dict[str, tuple[dict[str, Any], str]]:
    n = torch.nn
    return {
        "two layers, both ways": ({"lstm": n.LSTM(3, 5, 2, bidirectional=True), "fc": n.Linear(10, 2)}, "lstm relu fc"),
        "without biases": ({"gru": n.GRU(2, 4, bias=False), "fc": n.Linear(4, 3, bias=False)}, "gru last fc softmax"),
        "a function in the middle": ({"lstm": n.LSTM(3, 6), "fc": n.Linear(6, 2)}, "lstm gelu fc"),
        "a plain RNN": ({"rnn": n.RNN(2, 3, nonlinearity="relu"), "fc": n.Linear(3, 2)}, "rnn:relu fc skip"),
        "an embedding": ({"embed": n.Embedding(9, 4), "gru": n.GRU(4, 5), "fc": n.Linear(5, 3)}, "embed gru fc log_softmax"),
        "a slope": ({"a": n.Linear(2, 4), "prelu": n.PReLU(4), "lstm": n.LSTM(4, 3)}, "a prelu lstm tanh"),
        "the last states of an LSTM": ({"lstm": n.LSTM(3, 5, 2, bidirectional=True), "fc": n.Linear(10, 2)}, "lstm final tanh fc"),
        "the last states of a GRU": ({"gru": n.GRU(3, 5, bidirectional=True), "fc": n.Linear(10, 2)}, "gru final fc"),
        "the last state of one direction": ({"rnn": n.RNN(3, 5), "fc": n.Linear(5, 2)}, "rnn:tanh final fc"),
        "the mean of the steps": ({"gru": n.GRU(3, 5, bidirectional=True), "fc": n.Linear(10, 2)}, "gru mean fc"),
        "the maximum of the steps": ({"lstm": n.LSTM(3, 5), "fc": n.Linear(5, 2)}, "lstm relu max fc"),
        "two layers as directions": ({"fw": n.LSTM(3, 4, 2), "bw": n.GRU(3, 5), "fc": n.Linear(9, 2)}, "fw+bw relu fc"),
        "last states of two layers": (
            {"e": n.Embedding(9, 3), "fw": n.LSTM(3, 4), "bw": n.LSTM(3, 4), "fc": n.Linear(8, 2)},
            "e fw+bw final fc",
        ),
        "names within names": ({"body": n.ModuleDict({"lstm": n.LSTM(2, 4)}), "head": n.ModuleDict({"fc": n.Linear(4, 1)})}, "lstm fc"),
    }


@pytest.mark.parametrize("target", ["m.onnx", "m.tflite", "m.h"])
def test_a_chain_is_proved_beside_the_layers_of_torch(target: str, tmp_path: Path) -> None:
    torch = needed("torch", "torch")
    every = chains(torch)

    def check(name: str) -> None:
        layers, order = every[name]
        torch.save(torch.nn.ModuleDict(layers).state_dict(), tmp_path / "a.pt")
        done = rc.export_model(tmp_path / "a.pt", tmp_path / target, chain=order, verify=True, force=True)
        assert done.equal and "are not proved" in str(done)

    drawn_each(every, check)


def test_two_cells_of_flax_are_the_directions_of_one_layer(tmp_path: Path) -> None:
    """Flax has a layer of both directions as two cells, and its files no order of layers."""
    jax = needed("jax", "jax")
    linen, serialization = needed("flax", "flax.linen"), needed("flax", "flax.serialization")

    class Tagger(linen.Module):
        @linen.compact
        def __call__(self, x: Any) -> Any:
            x = linen.RNN(linen.OptimizedLSTMCell(4))(linen.Embed(10, 6)(x))
            x = linen.Bidirectional(linen.RNN(linen.GRUCell(5)), linen.RNN(linen.GRUCell(3)))(x)
            x = linen.relu(linen.Dense(8)(x))
            return linen.Dense(2)(x)

    x = np.random.default_rng(1).integers(0, 10, (2, 7))
    weights = Tagger().init(jax.random.key(1), x)
    (tmp_path / "a.msgpack").write_bytes(serialization.to_bytes(weights))
    chain = "Embed_0 OptimizedLSTMCell_0 GRUCell_0+GRUCell_1 Dense_0 relu Dense_1"
    rc.export_model(tmp_path / "a.msgpack", tmp_path / "a.onnx", chain=chain)
    (y,) = RUNS["onnx"](tmp_path / "a.onnx")([x])
    np.testing.assert_allclose(y, np.asarray(Tagger().apply(weights, x)), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("chain", ["a+a fc", "a+fc", "a+b+b", "a+wide fc", "both+b fc"])
def test_others_are_no_directions_of_one_layer(chain: str, tmp_path: Path) -> None:
    torch = needed("torch", "torch")
    n = torch.nn
    layers = {"a": n.GRU(3, 4), "b": n.GRU(3, 4), "wide": n.GRU(4, 4), "both": n.GRU(3, 2, bidirectional=True), "fc": n.Linear(8, 2)}
    torch.save(n.ModuleDict(layers).state_dict(), tmp_path / "a.pt")
    with pytest.raises(rc.UsageError, match=r"is named twice|makes them the directions of one layer"):
        rc.export_model(tmp_path / "a.pt", tmp_path / "a.onnx", chain=chain)


def test_files_of_other_kinds_are_proved_and_a_lost_function_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = needed("torch", "torch")
    import safetensors.torch

    state = torch.nn.ModuleDict({"lstm": torch.nn.LSTM(2, 4), "fc": torch.nn.Linear(4, 1)}).state_dict()
    safetensors.torch.save_file(state, tmp_path / "a.safetensors")
    torch.save({"epoch": 3, "state_dict": {f"model.{name}": tensor for name, tensor in state.items()}}, tmp_path / "a.ckpt")
    optimizer = torch.optim.Adam(torch.nn.Linear(2, 2).parameters()).state_dict()
    torch.save({"step": 3, "model": state, "optimizer": optimizer}, tmp_path / "a.pth")
    for source in ("a.safetensors", "a.ckpt", "a.pth"):
        assert rc.export_model(tmp_path / source, tmp_path / "a.onnx", chain="lstm relu fc", verify=True, force=True).equal
    (tmp_path / "a.onnx").unlink()
    monkeypatch.setattr(ordered, "activation", lambda build, x, word: x)
    with pytest.raises(rc.NotEqualError):
        rc.export_model(tmp_path / "a.ckpt", tmp_path / "a.onnx", chain="lstm relu fc", verify=True)
    assert not (tmp_path / "a.onnx").exists()


@pytest.mark.parametrize("chain", ["lstm fc", "lstm last fc", "lstm final fc"])
@pytest.mark.parametrize("both", [False, True])
@pytest.mark.filterwarnings("ignore:LSTM with projections:UserWarning")
def test_a_projection_is_a_part_of_its_layer(chain: str, both: bool, tmp_path: Path) -> None:
    torch = needed("torch", "torch")
    lstm, fc = torch.nn.LSTM(3, 6, 2, proj_size=2, bidirectional=both), torch.nn.Linear(2 + 2 * both, 1)
    torch.save(torch.nn.ModuleDict({"lstm": lstm, "fc": fc}).state_dict(), tmp_path / "a.pt")
    assert rc.export_model(tmp_path / "a.pt", tmp_path / "a.onnx", chain=chain, verify=True).equal


def test_a_chain_that_nothing_builds_is_not_proved(tmp_path: Path) -> None:
    rc.save(checkpoint(stack("lstm", name="encoder")), tmp_path / "a.bson", "knet")
    with pytest.raises(rc.UsageError, match="nothing builds a chain of its layers"):
        rc.export_model(tmp_path / "a.bson", tmp_path / "a.onnx", chain="rnn", verify=True)
    torch = needed("torch", "torch")
    torch.save({"model": {"lstm": torch.nn.LSTM(2, 4).state_dict()}}, tmp_path / "a.pt")
    with pytest.raises(rc.UsageError, match=r"builds the chain of torch\.nn's layers, and cannot"):
        rc.export_model(tmp_path / "a.pt", tmp_path / "a.onnx", chain="lstm", verify=True)
    assert not (tmp_path / "a.onnx").exists()


_MULTIPLICATIVE = """
import torch
from torch import nn


class Cell(nn.Module):
    def __init__(self, width, size, biases, order):
        super().__init__()
        self.wx, self.wh = nn.Linear(width, 4 * size, bias=biases[0]), nn.Linear(size, 4 * size, bias=biases[1])
        self.wmx, self.wmh = nn.Linear(width, size, bias=biases[2]), nn.Linear(size, size, bias=biases[3])
        self.size, self.order = size, order

    def forward(self, x):
        h = c = torch.zeros(len(x), self.size)
        steps = []
        for x_t in x.unbind(1):
            gates = (self.wx(x_t) + self.wh(self.wmx(x_t) * self.wmh(h))).chunk(4, 1)
            gate = dict(zip(self.order, gates))
            c = gate["f"].sigmoid() * c + gate["i"].sigmoid() * gate["g"].tanh()
            h = gate["o"].sigmoid() * c.tanh()
            steps.append(h)
        return torch.stack(steps, 1)


class Model(nn.Module):
    def __init__(self, width, size, biases, order):
        super().__init__()
        self.layer_0, self.layer_1 = Cell(width, size, biases, order), Cell(size, 3, biases, order)
        self.h2o = nn.Linear(3, 2)

    def forward(self, x):
        return self.h2o(self.layer_1(self.layer_0(x)))
"""


def test_a_multiplicative_lstm_once_the_order_of_its_gates_is_stated(tmp_path: Path) -> None:
    torch = needed("torch", "torch")
    module: dict[str, Any] = {}
    exec(_MULTIPLICATIVE, module)
    orders = ["".join(order) for order in itertools.permutations("ifgo")]

    def check(seed: int) -> None:
        draw = np.random.default_rng(seed)
        width, size, order = int(draw.integers(1, 6)), int(draw.integers(1, 6)), "ifog" if seed % 2 else str(draw.choice(orders))
        torch.manual_seed(seed)
        model = module["Model"](width, size, [bool(flag) for flag in draw.integers(0, 2, 4)], order).eval()
        path, chain = tmp_path / "model.pt", f"layer_0:{order} layer_1:{order} h2o"
        torch.save(model.state_dict(), path)
        x = draw.normal(size=(2, int(draw.integers(1, 7)), width)).astype(np.float32)
        truth = model(torch.from_numpy(x)).detach().numpy()
        for ending in ("onnx", "tflite") if seed % 3 == 0 else ("onnx",):
            rc.export_model(path, tmp_path / f"model.{ending}", chain=chain, force=True)
            np.testing.assert_allclose(RUNS[ending](tmp_path / f"model.{ending}")([x])[0], truth, rtol=1e-5, atol=1e-6)
        if seed % 6 == 0:
            rc.scaffold(path, "pytorch", tmp_path / "model.py", chain=chain, force=True)
            code: dict[str, Any] = {"__name__": "written"}
            exec((tmp_path / "model.py").read_text(), code)
            output = code["load"](path)(torch.from_numpy(x)).detach().numpy()
            np.testing.assert_allclose(output, truth, rtol=1e-5, atol=1e-6)

    drawn_each(drawn(range(36), 10, "multiplicative"), check)
    with pytest.raises(rc.UsageError, match=r"order of the gates of 'layer_0'.*layer_0:ifog"):
        rc.export_model(tmp_path / "model.pt", tmp_path / "other.onnx", chain="layer_0 layer_1:ifog h2o")
    with pytest.raises(rc.UsageError, match="builds the chain of torch"):
        rc.export_model(tmp_path / "model.pt", tmp_path / "other.onnx", chain="layer_0:ifog layer_1:ifog h2o", verify=True)


def test_a_multiplicative_lstm_with_other_arrays_is_none(tmp_path: Path) -> None:
    """The original has norms of its weights, gx to gmh, which are no part of the products that are known here."""
    torch = needed("torch", "torch")
    module: dict[str, Any] = {}
    exec(_MULTIPLICATIVE, module)
    state = module["Cell"](3, 4, [True] * 4, "ifog").state_dict()
    torch.save({f"rnn.{name}": array for name, array in (state | {"gx": torch.ones(16)}).items()}, tmp_path / "model.pt")
    with pytest.raises(rc.UsageError, match="names no layer"):
        rc.export_model(tmp_path / "model.pt", tmp_path / "model.onnx", chain="rnn:ifog")
