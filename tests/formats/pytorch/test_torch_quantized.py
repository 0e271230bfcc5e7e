"""What torch's dynamic quantization makes of recurrent layers, in every way to save it: torch runs it, and we read what it stands for."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core import reference
from rnnconvert.core.errors import RefusedError
from tests.helpers.drawn import looped
from tests.helpers.requirements import needed

X = np.random.default_rng(0).uniform(-1, 1, (6, 2, 3)).astype(np.float32)


def quantized(name: str, layers: int, ways: int, width: int = 3) -> Any:
    torch = needed("torch", "torch")
    torch.manual_seed(layers + ways)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = torch.nn.Sequential(getattr(torch.nn, name)(width, 5, layers, bidirectional=ways == 2))
        return torch.ao.quantization.quantize_dynamic(module, {getattr(torch.nn, name)}, dtype=torch.qint8)


def saved(module: Any, how: str, path: Path) -> Path:
    torch = needed("torch", "torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if how == "script":
            torch.jit.script(module).save(str(path))
        else:
            torch.save(module if how == "module" else module.state_dict(), path)
    return path


@looped(3, name=("LSTM", "GRU"), layers=(1, 2), ways=(1, 2), how=("state_dict", "module", "script"))
def test_packed_weights_are_read(name: str, layers: int, ways: int, how: str, tmp_path: Path) -> None:
    """As near to torch's own outputs as its rounding of what is multiplied leaves them; a wrong gate is 50 times farther off."""
    module = quantized(name, layers, ways)
    checkpoint = rc.load(saved(module, how, tmp_path / "m.pt"))
    (stack,) = checkpoint.layers.values()
    assert (stack.num_layers, stack.num_directions) == (layers, ways)
    assert any("not exactly those of this layer" in warning for warning in checkpoint.warnings), checkpoint.warnings
    torch = needed("torch", "torch")
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        y = module(torch.from_numpy(X))[0].numpy()
    assert np.abs(reference.run(stack, X).y - y).max() < 0.015
    gates = stack.cell.gates
    swapped = stack.first.with_arrays({("recurrent", gates[0]): stack.first.arrays["recurrent", gates[1]],
                                       ("input", gates[0]): stack.first.arrays["input", gates[1]]})  # fmt: skip
    if layers == ways == 1:
        wrong = stack.replace(layers=(type(stack.layers[0])((swapped,)),))
        assert np.abs(reference.run(wrong, X).y - y).max() > 0.02
    assert rc.convert(tmp_path / "m.pt", tmp_path / "m.onnx").exact


def test_two_layers_that_look_like_two_directions_are_not_guessed(tmp_path: Path) -> None:
    module = quantized("LSTM", 2, 1, width=5)
    with pytest.raises(RefusedError, match="two directions of one"):
        rc.load(saved(module, "state_dict", tmp_path / "m.pt"))
    (stack,) = rc.load(saved(module, "script", tmp_path / "s.pt")).layers.values()
    assert (stack.num_layers, stack.num_directions) == (2, 1)


def test_scales_of_rows(tmp_path: Path) -> None:
    torch = needed("torch", "torch")
    weight = torch.quantize_per_channel(torch.randn(20, 3), torch.linspace(0.01, 0.2, 20).double(), torch.zeros(20).long(), 0, torch.qint8)
    state = torch.nn.LSTM(3, 5).state_dict() | {"weight_ih_l0": weight}
    torch.save(state, tmp_path / "m.pt")
    checkpoint = rc.load(tmp_path / "m.pt")
    (stack,) = checkpoint.layers.values()
    matrix = np.concatenate([np.asarray(stack.first.arrays["input", gate]) for gate in "ifgo"])
    assert np.allclose(matrix, weight.dequantize().numpy(), rtol=1e-6) and "stored as integers" in " ".join(checkpoint.warnings)


def test_a_state_dictionary_of_quantized_weights_becomes_one_of_floats(tmp_path: Path) -> None:
    module = quantized("LSTM", 1, 1)
    rc.convert(saved(module, "state_dict", tmp_path / "q.pt"), tmp_path / "float.pt")
    torch = needed("torch", "torch")
    state = torch.load(tmp_path / "float.pt", weights_only=True)
    lstm = torch.nn.LSTM(3, 5)
    lstm.load_state_dict({key.partition(".")[2]: value for key, value in state.items()})
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert (lstm(torch.from_numpy(X))[0] - module(torch.from_numpy(X))[0]).abs().max() < 0.015


def test_an_operator_that_nothing_follows_is_refused_by_its_own_name(tmp_path: Path) -> None:
    torch = needed("torch", "torch")

    class Headed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.fc = torch.nn.LSTM(3, 4), torch.nn.Linear(4, 2)

        def forward(self, x: Any) -> Any:
            return self.fc(self.rnn(x)[0])

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = torch.ao.quantization.quantize_dynamic(Headed().eval(), {torch.nn.LSTM, torch.nn.Linear}, dtype=torch.qint8)
        torch.jit.trace(module, torch.zeros(5, 1, 3), check_trace=False).save(str(tmp_path / "m.pt"))
    with pytest.raises(rc.RefusedError, match=r"cannot hold the operator quantized\.linear_dynamic:"):
        rc.export_model(tmp_path / "m.pt", tmp_path / "m.onnx")
