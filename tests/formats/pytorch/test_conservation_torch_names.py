"""A state dictionary's arrays beside a parameter: what the parameter is made of is applied, and anything else is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core.errors import RefusedError
from tests.helpers.requirements import needed

torch = needed("torch", "torch")

IH, HH = "lstm.weight_ih_l0", "lstm.weight_hh_l0"
PREFIXES = ["lstm.", "", "module.lstm.", "lstm._orig_mod.", "net.lstm.0."]


def state(prefix: str = "lstm.") -> dict[str, Any]:
    torch.manual_seed(3)
    return {prefix + name: tensor.clone() for name, tensor in torch.nn.LSTM(3, 4).state_dict().items()}


def converted(arrays: dict[str, Any], folder: Path, **options: Any) -> rc.Summary:
    torch.save(arrays, folder / "a.pt")
    (folder / "b.onnx").unlink(missing_ok=True)
    return rc.convert(folder / "a.pt", folder / "b.onnx", strict=True, **options)


def refused(arrays: dict[str, Any], folder: Path, *named: str) -> None:
    with pytest.raises(RefusedError) as caught:
        converted(arrays, folder)
    assert any(repr(name) in str(caught.value) for name in named), caught.value
    assert not (folder / "b.onnx").exists()
    # A person may take it over: then the plain array is what is read.
    converted(arrays, folder, unaccounted="harmless")
    (stack,) = rc.load(folder / "a.pt", unaccounted="harmless").layers.values()
    plain = next(arrays[name] for name in arrays if name.endswith("weight_hh_l0"))
    assert np.array_equal(stack.gates["i"].recurrent, plain[:4].numpy())


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("ending", ["_mask", "_g", "_v", "_orig", "_u", "_scale", ".lora_A", ".lora_B", ".a.b"])
def test_what_is_attached_to_a_parameter_and_not_applied_is_refused(prefix: str, ending: str, tmp_path: Path) -> None:
    name = f"{prefix}weight_hh_l0{ending}"
    refused({**state(prefix), name: torch.full((16, 4), 0.5)}, tmp_path, name)
    refused({**state(prefix), name: torch.full((3,), 0.5)}, tmp_path, name)


@pytest.mark.parametrize("prefix", [text for text in PREFIXES if text])
@pytest.mark.parametrize("local", ["ln.weight", "cell.norm.weight", "parametrizations.weight_hh_l0.original0", "h0"])
def test_a_module_inside_a_layer_is_refused(prefix: str, local: str, tmp_path: Path) -> None:
    refused({**state(prefix), prefix + local: torch.ones(5)}, tmp_path, prefix + local)


def norms(weight: Any) -> tuple[Any, Any]:
    return weight.norm(dim=1, keepdim=True), weight


PIECES = {
    "weight norm": lambda w, k: {f"{IH}_g": k * norms(w)[0], f"{IH}_v": norms(w)[1]},
    "parametrization": lambda w, k: {
        "lstm.parametrizations.weight_ih_l0.original0": k * norms(w)[0],
        "lstm.parametrizations.weight_ih_l0.original1": norms(w)[1],
    },
    "pruning": lambda w, k: {f"{IH}_orig": k * w, f"{IH}_mask": torch.ones_like(w)},
    "spectral norm": lambda w, k: {
        f"{IH}_orig": 3 * w,
        f"{IH}_u": torch.nn.functional.normalize(w.sum(1), dim=0) / k,
        f"{IH}_v": 3 / (torch.nn.functional.normalize(w.sum(1), dim=0) @ (3 * w)).sum() * torch.ones(w.shape[1]),
    },
}


@pytest.mark.parametrize("kind", PIECES)
@pytest.mark.parametrize("first", [True, False])
def test_a_plain_array_with_other_numbers_than_its_pieces_is_refused(kind: str, first: bool, tmp_path: Path) -> None:
    plain = state()
    same, other = (PIECES[kind](plain[IH], factor) for factor in (1, 2))
    refused({**other, **plain} if first else {**plain, **other}, tmp_path, *other)
    assert not converted({**same, **plain} if first else {**plain, **same}, tmp_path).left_out
    (stack,) = rc.load(tmp_path / "a.pt").layers.values()
    assert np.array_equal(np.asarray(stack.first.arrays["input", "i"]), plain[IH][:4].numpy())


def test_two_sets_of_pieces_are_refused(tmp_path: Path) -> None:
    plain = state()
    weight = plain.pop(IH)
    mask = torch.zeros_like(weight)
    with pytest.raises(RefusedError, match=r"'lstm\.weight_ih_l0_(orig|mask)' of its module"):
        converted({**plain, **PIECES["weight norm"](weight, 1), f"{IH}_orig": weight, f"{IH}_mask": mask}, tmp_path)


def test_a_raw_array_with_numbers_that_dropout_does_not_make_is_refused(tmp_path: Path) -> None:
    plain = state()
    raw = plain[HH].clone()
    dropped = torch.nn.functional.dropout(raw, 0.5)
    for matrix in (raw, dropped, torch.zeros_like(raw)):
        converted({**plain, HH: matrix, f"{HH}_raw": raw}, tmp_path)
    for matrix in (raw + 1, -raw, raw * torch.rand(16, 4), raw[:, :3]):
        with pytest.raises(RefusedError, match=r"'lstm\.weight_hh_l0' of its module.*'lstm\.weight_hh_l0_raw'"):
            converted({**plain, HH: matrix, f"{HH}_raw": raw}, tmp_path)


def test_a_network_around_a_layer_and_layers_in_a_layer_go_on_to_work(tmp_path: Path) -> None:
    class Around(torch.nn.LSTM):
        def __init__(self) -> None:
            super().__init__(3, 4)
            self.inner = torch.nn.LSTM(3, 4)
            self.head = torch.nn.Linear(4, 2)

    class Lists(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnns = torch.nn.ModuleList(torch.nn.LSTM(3, 4) for _ in range(2))
            self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(4) for _ in range(2))

    inside = {f"lstm.inner.{name}": tensor for name, tensor in torch.nn.LSTM(4, 4).state_dict().items()}
    for arrays, count in ((Around().state_dict(), 2), (Lists().state_dict(), 2), ({**state(), **inside}, 2)):
        torch.save(arrays, tmp_path / "a.pt")
        read = rc.load(tmp_path / "a.pt")
        assert len(read.layers) == count
        assert not any(stack.unconvertible for stack in read.layers.values())


@pytest.mark.parametrize("name", ["", "encoder"])
def test_spectral_norm_without_its_second_vector_is_called_by_its_name(name: str, tmp_path: Path) -> None:
    """As PyTorch 1.0 wrote it, which found that vector anew."""
    layer = torch.nn.LSTM(3, 4)
    torch.nn.utils.spectral_norm(layer, "weight_hh_l0")
    arrays = {f"{name}.{key}".strip("."): tensor for key, tensor in layer.state_dict().items() if not key.endswith("_v")}
    for ordered in (arrays, dict(reversed(arrays.items()))):
        with pytest.raises(RefusedError, match=r"spectral norm.*remove_spectral_norm\(\w+, 'weight_hh_l0'\)"):
            converted(ordered, tmp_path)


@pytest.mark.parametrize("sparse", [("weight_hh_l0",), ("bias_ih_l0", "bias_hh_l0"), ("weight_ih_l0", "weight_hh_l0")])
@pytest.mark.parametrize("layout", ["coo", "csr"])
@pytest.mark.filterwarnings("ignore:Sparse CSR")
def test_a_sparse_parameter_is_called_sparse(sparse: tuple[str, ...], layout: str, tmp_path: Path) -> None:
    arrays = state()
    for local in sparse:
        dense = arrays[f"lstm.{local}"]
        if layout == "csr" and dense.ndim == 1:
            dense = dense[None]
        arrays[f"lstm.{local}"] = dense.to_sparse_csr() if layout == "csr" else dense.to_sparse()
    with pytest.raises(RefusedError, match=rf"'lstm\.({'|'.join(sparse)})'.*sparse.*to_dense\(\)"):
        converted(arrays, tmp_path)
