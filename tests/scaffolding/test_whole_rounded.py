"""Whole models in fewer bits: as near to their source as the rounding of their weights explains, and never called equal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import rnnconvert as rc
from rnnconvert.cli.main import main
from rnnconvert.judging.judging import Output
from rnnconvert.judging.whole import SHAKES, WholeJudge
from rnnconvert.models.runners import FileModel
from rnnconvert.scaffolding.exported import MovedWeights, Rounding
from rnnconvert.scaffolding.sources import described_source
from rnnconvert.scaffolding.weights import LayerWeights
from tests.helpers.drawn import drawn, each
from tests.helpers.exported import RUNS
from tests.helpers.random_models import fill, random_model
from tests.helpers.requirements import needed

pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Layer .* was passed an input with a mask:UserWarning"),
    pytest.mark.filterwarnings("ignore:The structure of `inputs`:UserWarning"),
]


@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_models_drawn_by_a_seed_are_as_near_as_rounding_explains(tmp_path: Path, dtype: Rounding) -> None:
    from rnnconvert.formats.tflite import export_to

    def check(seed: int) -> None:
        model = random_model(seed)
        fill(model, seed)
        model.save(tmp_path / "m.keras")
        source, random = described_source(tmp_path / "m.keras"), np.random.default_rng(seed)
        shapes = [tuple(n or 7 for n in (3, *tensor.shape[1:])) for tensor in model.inputs]
        inputs = [
            random.integers(0, 4, shape).astype(tensor.dtype) if "int" in tensor.dtype else random.normal(size=shape).astype(np.float32)
            for shape, tensor in zip(shapes, model.inputs, strict=True)
        ]

        def run(weights: LayerWeights, dtype: str = "float32") -> list[Any]:
            export_to.graph(source.description, weights, dtype).write(tmp_path / "m.tflite")
            return RUNS["tflite"](tmp_path / "m.tflite")(inputs)

        names = source.description.names
        plain = LayerWeights(source.model, names)
        moved = [run(MovedWeights(source.model, names, rounding=dtype, seed=shake)) for shake in range(SHAKES)]
        for number, (value, truth) in enumerate(zip(run(plain, dtype), run(plain), strict=True)):
            floors = [outputs[number] for outputs in moved]
            compared = WholeJudge(np.dtype(np.float32)).compare(Output("", "output"), value, truth, truth_moved=floors)
            assert compared.passed and compared.telling, compared
            assert not np.array_equal(value, truth), "nothing was rounded"

    each(drawn(range(100), 4, f"models in {dtype}"), check)


def saved(folder: Path, *layers: Any) -> Path:
    k = needed("keras", "keras")
    model = k.Sequential([k.Input((None, 6)), *layers, k.layers.Dense(3)])
    fill(model, 2)
    model.save(folder / "m.keras")
    return folder / "m.keras"


@pytest.mark.parametrize("target", ["m.tflite", "m.h"])
@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_a_proof_names_what_is_rounded(tmp_path: Path, target: str, dtype: str) -> None:
    source = saved(tmp_path, needed("keras", "keras").layers.LSTM(16))
    result = CliRunner().invoke(main, ["export", str(source), str(tmp_path / target), "--dtype", dtype, "--verify"])
    assert result.exit_code == 0, result.output
    assert f"rounded to {dtype}" in result.output and "as near as its rounded weights explain" in result.output
    verdict = next(line for line in result.output.splitlines() if "runs of both models" in line)
    assert verdict.startswith("equal but for: its ")


def test_a_wrong_scale_is_not_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = saved(tmp_path, needed("keras", "keras").layers.GRU(16))
    opened: list[Path] = []

    def spoilt(format: str, path: Path) -> FileModel:
        opened.append(path)
        if path.parent.name not in ("exact",) and not path.parent.name.startswith("moved"):
            content = bytearray(path.read_bytes())
            place = content.find(np.float32(_scale(path)).tobytes())
            content[place : place + 4] = np.float32(_scale(path) * 2).tobytes()
            path.write_bytes(bytes(content))
        return FileModel(path, ["litert-cpu"])

    monkeypatch.setattr("rnnconvert.scaffolding.exported.open_file", spoilt)
    with pytest.raises(rc.NotEqualError, match="beside float32: not equal"):
        rc.export_model(source, tmp_path / "m.tflite", dtype="int8", verify=True)
    assert not (tmp_path / "m.tflite").exists() and len(opened) > 2


def _scale(path: Path) -> float:
    """The first scale of the dense layer."""
    litert = needed("litert", "ai_edge_litert.interpreter")
    details = litert.Interpreter(str(path)).get_tensor_details()
    (scales,) = (detail["quantization_parameters"]["scales"] for detail in details if len(detail["quantization_parameters"]["scales"]) == 3)
    return float(scales[0])


def test_sizes(tmp_path: Path) -> None:
    source = saved(tmp_path, needed("keras", "keras").layers.LSTM(200))
    sizes = {}
    for dtype in (None, "float16", "int8"):
        rc.export_model(source, tmp_path / "m.tflite", dtype=dtype, force=True)
        sizes[dtype] = (tmp_path / "m.tflite").stat().st_size
    assert sizes["float16"] < 0.53 * sizes[None] and sizes["int8"] < 0.3 * sizes[None], sizes


def test_what_float16_does_not_reach_stays(tmp_path: Path) -> None:
    k = needed("keras", "keras")
    model = k.Sequential([k.Input((4,)), k.layers.Dense(3)])
    model.layers[0].set_weights([np.full((4, 3), 1e5, np.float32), np.ones(3, np.float32)])
    model.save(tmp_path / "m.keras")
    done = rc.export_model(tmp_path / "m.keras", tmp_path / "m.tflite", dtype="float16")
    assert any("float16 ends at 65504" in note for note in done.notes)
    (y,) = RUNS["tflite"](tmp_path / "m.tflite")([np.ones((1, 4), np.float32)])
    np.testing.assert_array_equal(y, np.full((1, 3), 4e5 + 1, np.float32))


def test_int8_refuses_an_infinite_weight(tmp_path: Path) -> None:
    k = needed("keras", "keras")
    model = k.Sequential([k.Input((4,)), k.layers.Dense(3)])
    model.layers[0].set_weights([np.full((4, 3), np.inf, np.float32), np.ones(3, np.float32)])
    model.save(tmp_path / "m.keras")
    with pytest.raises(rc.RefusedError, match="infinite"):
        rc.export_model(tmp_path / "m.keras", tmp_path / "m.tflite", dtype="int8")
    assert not (tmp_path / "m.tflite").exists()


@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_recurrent_layers_are_read_again(tmp_path: Path, dtype: str) -> None:
    k = needed("keras", "keras")
    source = saved(
        tmp_path, k.layers.LSTM(8, return_sequences=True), k.layers.GRU(5, reset_after=False, return_sequences=True), k.layers.GRU(4)
    )
    rc.export_model(source, tmp_path / "m.tflite", dtype=dtype)
    ours, theirs = rc.load(tmp_path / "m.tflite"), rc.load(source)
    assert [stack.cell.kind for stack in ours.layers.values()] == ["lstm", "gru", "gru"]
    for stack, exact in zip(ours.layers.values(), theirs.layers.values(), strict=True):
        for key, array in stack.layers[0].directions[0].arrays.items():
            if "bias" not in key[0]:
                truth = np.asarray(exact.layers[0].directions[0].arrays[key])
                np.testing.assert_allclose(np.asarray(array), truth, atol=np.abs(truth).max() / 250)


def test_a_type_that_its_kernels_do_not_compute_in_is_a_mistake(tmp_path: Path) -> None:
    source = saved(tmp_path)
    result = CliRunner().invoke(main, ["export", str(source), str(tmp_path / "m.tflite"), "--dtype", "float64"])
    assert result.exit_code == 2 and "Choose float32, float16 or int8" in result.output
