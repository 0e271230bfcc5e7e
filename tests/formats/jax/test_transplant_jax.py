"""Foreign weights into JAX's trees, and out of them: Flax linen and nnx, Haiku and Equinox run beside PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core.arrays import Array
from rnnconvert.running.child import missing
from tests.helpers.judging import close
from tests.helpers.requirements import need

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")

TOKENS = np.random.default_rng(5).integers(0, 30, (3, 12))


@pytest.fixture(autouse=True)
def needed() -> None:
    need("torch", missing(["torch"]))
    need("jax", missing(["jax", "flax", "haiku", "equinox"]))


def torch_model(recurrent: str = "gru", norm: bool = True, epsilon: float = 1e-6) -> Any:
    """Embedding, convolution, a batch norm, two directions, an LSTM, a layer norm and two dense layers."""
    import torch
    from torch import nn

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(30, 8)
            self.conv = nn.Conv1d(8, 12, 3, padding=1)
            self.norm = nn.BatchNorm1d(12) if norm else nn.Identity()
            kinds = {"gru": nn.GRU, "lstm": nn.LSTM}
            self.both = kinds[recurrent](12, 6, bidirectional=True, batch_first=True) if recurrent else None
            self.lstm = nn.LSTM(12, 7, batch_first=True)
            self.behind = nn.LayerNorm(7, eps=epsilon)
            self.hidden = nn.Linear(7, 9)
            self.head = nn.Linear(9, 4)

        def forward(self, x: Any) -> Any:
            y = self.norm(self.conv(self.embedding(x).transpose(1, 2))).transpose(1, 2)
            y = self.both(y)[0] if self.both is not None else y
            return self.head(torch.relu(self.hidden(self.behind(self.lstm(y)[0][:, -1]))))

    torch.manual_seed(3)
    model = Model().eval()
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if tensor.is_floating_point():
                tensor.copy_(torch.randn_like(tensor) * 0.4)
                if "var" in name:
                    tensor.abs_().add_(0.5)
    return model


def in_torch(model: Any) -> Array:
    import torch

    with torch.no_grad():
        return np.asarray(model(torch.from_numpy(TOKENS)).numpy())


def linen_model() -> Any:
    import flax.linen as nn

    class Model(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            y = nn.Conv(12, (3,), padding="SAME")(nn.Embed(30, 8)(x))
            y = nn.BatchNorm(use_running_average=True)(y)
            y = nn.Bidirectional(nn.RNN(nn.GRUCell(6)), nn.RNN(nn.GRUCell(6)))(y)
            y = nn.LayerNorm()(nn.RNN(nn.OptimizedLSTMCell(7))(y)[:, -1])
            return nn.Dense(4)(nn.relu(nn.Dense(9)(y)))

    return Model()


def test_linen_takes_and_gives_a_whole_model() -> None:
    import jax

    model = linen_model()
    variables = model.init(jax.random.key(0), TOKENS)
    module = torch_model()
    ways = "GRUCell_0 + GRUCell_1"
    with pytest.raises(rc.TransplantError, match=r"confirm with the mapping GRUCell|mapping"):
        rc.load_into(torch_model(), variables, accept=["epsilon"])
    with pytest.raises(rc.TransplantError, match="epsilon is 1e-05"):
        rc.load_into(torch_model(epsilon=1e-5), variables, {"both": ways})
    before = np.asarray(model.apply(variables, TOKENS))
    report = rc.load_into(variables, module, {ways: "both"})
    assert str(report).split("\n")[0].endswith("in report.model; yours is unchanged)")
    assert close(np.asarray(model.apply(report.model, TOKENS)), in_torch(module))
    assert np.array_equal(model.apply(variables, TOKENS), before), "the tree that was handed in has changed"
    assert report.kept == report.left == ()
    compared = report.verify(TOKENS, apply=model.apply)
    assert compared and [entry.output for entry in compared.comparisons] == ["output"]
    with pytest.raises(rc.UsageError, match="holds no code"):
        report.verify(TOKENS)
    back = torch_model()
    for parameter in back.parameters():
        parameter.data.zero_()
    rc.load_into(back, report.model, {"both": ways})
    assert close(in_torch(back), in_torch(module))
    assert not rc.load_into(variables, torch_model(epsilon=1e-3), {ways: "both"}, accept=["epsilon"]).verify(TOKENS, apply=model.apply)
    crossed = rc.load_into(variables, module, {"GRUCell_1 + GRUCell_0": "both"})
    assert not close(np.asarray(model.apply(crossed.model, TOKENS)), in_torch(module))


def test_files_of_linen_take_and_give(tmp_path: Path) -> None:
    import jax
    import torch
    from flax import serialization

    model = linen_model()
    variables = model.init(jax.random.key(0), TOKENS)
    path, out = tmp_path / "variables.msgpack", tmp_path / "out.msgpack"
    path.write_bytes(serialization.to_bytes(variables))
    ways = "GRUCell_0 + GRUCell_1"
    module = torch_model()
    rc.load_into(module, path, {"both": ways})
    assert close(in_torch(module), np.asarray(model.apply(variables, TOKENS)))
    source = torch_model()
    with torch.no_grad():
        source.head.bias.add_(1.0)
    torch.save(source.state_dict(), tmp_path / "source.pt")
    (tmp_path / "mapping.yaml").write_text(f'layers:\n  "{ways}": both\naccept: [epsilon]\n', encoding="utf-8")
    rc.transplant_file(tmp_path / "source.pt", path, out, tmp_path / "mapping.yaml")
    filled = serialization.from_bytes(variables, out.read_bytes())
    assert close(np.asarray(model.apply(filled, TOKENS)), in_torch(source))


def test_nnx_takes_and_gives_a_whole_model() -> None:
    from flax import nnx

    class Model(nnx.Module):
        def __init__(self, rngs: Any) -> None:
            self.embedding = nnx.Embed(30, 8, rngs=rngs)
            self.conv = nnx.Conv(8, 12, (3,), rngs=rngs)
            self.norm = nnx.BatchNorm(12, use_running_average=True, rngs=rngs)
            cells = [nnx.OptimizedLSTMCell(12, 6, rngs=rngs) for _ in range(2)]
            self.both = nnx.Bidirectional(nnx.RNN(cells[0]), nnx.RNN(cells[1]))
            self.lstm = nnx.RNN(nnx.LSTMCell(12, 7, rngs=rngs))
            self.behind = nnx.LayerNorm(7, rngs=rngs)
            self.hidden = nnx.Linear(7, 9, rngs=rngs)
            self.head = nnx.Linear(9, 4, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            y = self.both(self.norm(self.conv(self.embedding(x))))
            return self.head(nnx.relu(self.hidden(self.behind(self.lstm(y)[:, -1]))))

    model, module = Model(nnx.Rngs(0)), torch_model("lstm")
    before = np.asarray(model(TOKENS))
    rc.load_into(model, module, dry_run=True)
    with pytest.raises(rc.TransplantError):
        rc.load_into(model, torch_model("gru"))
    assert np.array_equal(model(TOKENS), before)
    report = rc.load_into(model, module)
    assert report.model is model and "new tree" not in str(report)
    assert close(np.asarray(model(TOKENS)), in_torch(module))
    assert {entry.target: entry.source for entry in report.filled}["both"] == "both"
    filled = np.asarray(model(TOKENS))
    for apply in (None, lambda module, tokens: module(tokens)):  # a proof moves the weights of copies alone
        assert report.verify(TOKENS, apply=apply)
        assert np.array_equal(model(TOKENS), filled)
    back = torch_model("lstm")
    for parameter in back.parameters():
        parameter.data.zero_()
    rc.load_into(back, report.model)
    assert close(in_torch(back), in_torch(module))
    with pytest.raises(rc.TransplantError, match="epsilon is 1e-06 in the target and 1e-05 in the source"):
        rc.load_into(model, torch_model("lstm", epsilon=1e-5))
    with pytest.raises(rc.TransplantError, match="GRU"):
        rc.load_into(model, torch_model("gru"))


def test_haiku_takes_and_gives_a_whole_model() -> None:
    import haiku as hk
    import jax

    def forward(x: Any) -> Any:
        y = hk.Conv1D(12, 3)(hk.Embed(30, 8)(x))
        core = hk.LSTM(7)
        y, _ = hk.dynamic_unroll(core, y.transpose(1, 0, 2), core.initial_state(x.shape[0]))
        y = hk.LayerNorm(-1, True, True)(y[-1])
        return hk.Linear(4)(jax.nn.relu(hk.Linear(9)(y)))

    model = hk.without_apply_rng(hk.transform(forward))
    params = model.init(jax.random.key(0), TOKENS)
    module = torch_model("", norm=False, epsilon=1e-5)
    report = rc.load_into(params, module)
    assert close(np.asarray(model.apply(report.model, TOKENS)), in_torch(module))
    assert any("+1 on gate f" in step.detail for step in report.steps)
    back = torch_model("", norm=False, epsilon=1e-5)
    for parameter in back.parameters():
        parameter.data.zero_()
    rc.load_into(back, report.model)
    assert close(in_torch(back), in_torch(module))


def test_equinox_takes_and_gives_a_whole_model() -> None:
    import equinox as eqx
    import jax
    import jax.numpy as jnp

    class Model(eqx.Module):
        embedding: eqx.nn.Embedding
        conv: eqx.nn.Conv1d
        cell: eqx.nn.LSTMCell
        behind: eqx.nn.LayerNorm
        hidden: eqx.nn.Linear
        head: eqx.nn.Linear

        def __init__(self, key: Any) -> None:
            keys = jax.random.split(key, 5)
            self.embedding = eqx.nn.Embedding(30, 8, key=keys[0])
            self.conv = eqx.nn.Conv1d(8, 12, 3, padding=1, key=keys[1])
            self.cell = eqx.nn.LSTMCell(12, 7, key=keys[2])
            self.behind = eqx.nn.LayerNorm(7)
            self.hidden = eqx.nn.Linear(7, 9, key=keys[3])
            self.head = eqx.nn.Linear(9, 4, key=keys[4])

        def __call__(self, x: Any) -> Any:
            states = (jnp.zeros(7), jnp.zeros(7))
            for step in self.conv(jax.vmap(self.embedding)(x).T).T:
                states = self.cell(step, states)
            return self.head(jax.nn.relu(self.hidden(self.behind(states[0]))))

    model, module = Model(jax.random.key(1)), torch_model("", norm=False, epsilon=1e-5)
    report = rc.load_into(model, module)
    assert close(np.asarray(jax.vmap(report.model)(TOKENS)), in_torch(module))
    back = torch_model("", norm=False, epsilon=1e-5)
    for parameter in back.parameters():
        parameter.data.zero_()
    rc.load_into(back, report.model)
    assert close(in_torch(back), in_torch(module))


@pytest.mark.parametrize("strides", [1, 2])
def test_a_transposed_convolution_of_flax_runs_the_other_way(strides: int) -> None:
    import flax.linen as nn
    import jax
    import torch

    model = nn.ConvTranspose(4, (3, 2), strides=(strides, strides), padding="VALID")
    x = np.random.default_rng(0).normal(size=(2, 7, 5, 3)).astype(np.float32)
    variables = model.init(jax.random.key(0), x)
    module = torch.nn.Sequential(torch.nn.ConvTranspose2d(3, 4, (3, 2), stride=strides))
    rc.load_into(module, variables)
    y = module(torch.from_numpy(x).permute(0, 3, 1, 2)).permute(0, 2, 3, 1).detach().numpy()
    assert close(y, np.asarray(model.apply(variables, x)))


def test_a_flattened_convolution_is_asked_for() -> None:
    import flax.linen as nn
    import jax
    import torch

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            y = nn.Conv(6, (3, 3), padding="VALID")(x)
            return nn.Dense(5)(y.reshape(len(y), -1))

    x = np.random.default_rng(0).normal(size=(2, 7, 5, 3)).astype(np.float32)
    variables = Net().init(jax.random.key(0), x)
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 6, 3), torch.nn.Flatten(), torch.nn.Linear(90, 5))
    with pytest.raises(rc.TransplantError, match="flattened from 6 channels, and flax dict does not show"):
        rc.load_into(module, variables)
    rc.load_into(module, variables, flatten={"source": "channels_last"})
    y = module(torch.from_numpy(x).permute(0, 3, 1, 2)).detach().numpy()
    assert close(y, np.asarray(Net().apply(variables, x)))


def test_two_directions_that_are_none() -> None:
    import torch

    module = torch.nn.GRU(4, 5, bidirectional=True)
    source = torch.nn.ModuleDict({"one": torch.nn.GRU(4, 5), "two": torch.nn.GRU(3, 5)})
    with pytest.raises(rc.UsageError, match="'one' reads 4 values per step, but 'two' reads 3"):
        rc.load_into(torch.nn.ModuleDict({"gru": module}), source, {"gru": "one + two"})
    with pytest.raises(rc.UsageError, match="has no layer 'three'"):
        rc.load_into(torch.nn.ModuleDict({"gru": module}), source, {"gru": "one + three"})
