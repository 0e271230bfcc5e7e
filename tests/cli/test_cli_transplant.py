"""rnnconvert map and transplant: files in, a file out, and every existing file as it was on any error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import rnnconvert as rc
from tests.helpers.commands import call
from tests.helpers.whole_models import TAGGER, in_keras, need_both, randomise

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


def weights(seed: int, *names: str) -> dict[str, Any]:
    """A state dictionary with two GRUs of one size and a dense layer."""
    numbers = np.random.default_rng(seed)
    arrays = {}
    for name in names:
        for local, shape in (("weight_ih_l0", (15, 5)), ("weight_hh_l0", (15, 5)), ("bias_ih_l0", (15,)), ("bias_hh_l0", (15,))):
            arrays[f"{name}.{local}"] = numbers.normal(size=shape).astype(np.float32)
    arrays["head.weight"] = numbers.normal(size=(2, 5)).astype(np.float32)
    arrays["head.bias"] = numbers.normal(size=2).astype(np.float32)
    return arrays


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    source, target = tmp_path / "source.safetensors", tmp_path / "target.safetensors"
    save_file(weights(1, "encode", "decode"), source)
    save_file(weights(2, "first", "second"), target)
    return source, target


def test_a_mapping_is_proposed_edited_and_used(files: tuple[Path, Path], tmp_path: Path) -> None:
    source, target = files
    proposed = call("map", source, target)
    assert proposed.exit_code == 0 and "  # first: decode  # or encode\n" in proposed.stdout
    path = tmp_path / "mapping.yaml"
    written = call("map", source, target, "-o", path)
    assert written.exit_code == 0 and path.read_text() == proposed.stdout and "1 set of layers is ambiguous" in written.stderr
    assert call("map", source, target, "-o", path).exit_code == 0  # up to date
    out = tmp_path / "out.safetensors"
    refused = call("transplant", source, "--into", target, "-o", out, "--mapping", path)
    assert refused.exit_code == 4 and "may be filled from" in refused.stderr and not out.exists()
    assert "--trust-order" in refused.stderr
    path.write_text(path.read_text().replace("  # first: decode", "  first: decode"))
    assert call("map", source, target, "-o", path).exit_code == 2  # there is something new to say
    assert call("map", source, target, "-o", path, "--force").exit_code == 0
    text = path.read_text()
    assert "  first: decode" in text and "  second: encode" in text
    filled = call("transplant", source, "--into", target, "-o", out, "--mapping", path)
    assert filled.exit_code == 0, filled.stderr
    before, after = weights(1, "encode", "decode"), load_file(out)
    assert set(after) == set(weights(2, "first", "second"))
    assert np.array_equal(after["first.weight_hh_l0"], before["decode.weight_hh_l0"])
    assert np.array_equal(after["second.bias_ih_l0"], before["encode.bias_ih_l0"])
    assert np.array_equal(after["head.weight"], before["head.weight"])


def test_a_dry_run_and_json(files: tuple[Path, Path], tmp_path: Path) -> None:
    source, target = files
    out = tmp_path / "out.safetensors"
    options = ("transplant", source, "--into", target, "-o", out, "--trust-order", "--dry-run")
    result = call(*options, "--json")
    assert result.exit_code == 0 and not out.exists()
    assert [entry["target"] for entry in json.loads(result.stdout)["filled"]] == ["first", "head", "second"]
    assert "would write" in call(*options).stderr


def test_an_existing_file_stays_unless_it_may_be_replaced(files: tuple[Path, Path]) -> None:
    source, target = files
    before = target.read_bytes()
    assert call("transplant", source, "--into", target, "-o", target, "--trust-order").exit_code == 2
    assert target.read_bytes() == before
    assert call("transplant", source, "--into", target, "-o", target, "--trust-order", "--force").exit_code == 0
    assert np.array_equal(load_file(target)["head.bias"], weights(1, "encode", "decode")["head.bias"])


def test_what_fits_alone(files: tuple[Path, Path], tmp_path: Path) -> None:
    source, target = files
    out = tmp_path / "out.safetensors"
    result = call("transplant", source, "--into", target, "-o", out, "--partial")
    assert result.exit_code == 0 and "unchanged: first.weight_ih_l0" in result.stderr
    assert np.array_equal(load_file(out)["first.weight_ih_l0"], weights(2, "first", "second")["first.weight_ih_l0"])


@pytest.mark.parametrize("ending", [".keras", ".h5", ".weights.h5"])
def test_a_keras_file_is_filled_and_runs(ending: str, tmp_path: Path) -> None:
    need_both()
    import keras
    import torch

    model, module = TAGGER.models()
    rc.load_into(module, model)
    x = TAGGER.x()
    expected = in_keras(model, x)
    torch.save(module.state_dict(), tmp_path / "source.pt")
    randomise(model, 9)
    target, out = tmp_path / f"target{ending}", tmp_path / f"out{ending}"
    (model.save_weights if ending == ".weights.h5" else model.save)(target)
    refused = call("transplant", tmp_path / "source.pt", "--into", target, "-o", out)
    assert refused.exit_code == 4 and "--accept epsilon" in refused.stderr and not out.exists()
    result = call("transplant", tmp_path / "source.pt", "--into", target, "-o", out, "--accept", "epsilon")
    assert result.exit_code == 0, result.stderr
    if ending == ".weights.h5":
        model.load_weights(out)
    else:
        model = keras.models.load_model(out, compile=False)
    assert np.abs(in_keras(model, x) - expected).max() < 1e-5


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("map", "absent.pt", "target"), 3, "absent.pt"),
        (("transplant", "source", "--into", "target", "-o", "out.keras"), 2, "unknown ending"),
        (("transplant", "source", "--into", "target", "-o", "out.safetensors", "--mapping", "absent.yaml"), 3, "absent.yaml"),
        (("transplant", "source", "-o", "out.pt"), 2, "--into"),
    ],
)
def test_bad_calls(files: tuple[Path, Path], tmp_path: Path, arguments: tuple[str, ...], code: int, says: str) -> None:
    names = {"source": files[0], "target": files[1]}
    values = [names.get(argument, tmp_path / argument if "." in argument else argument) for argument in arguments]
    before = sorted(path.name for path in tmp_path.iterdir())
    result = call(*values, *(["--trust-order"] if "-o" in arguments and "--mapping" not in arguments else []))
    assert result.exit_code == code and says in result.stderr, result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == before
