"""GatherElements of ONNX in TFLite, which gathers along the last axis of a batch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import rnnconvert as rc
from tests.helpers.exported import FRAMEWORKS_WARN, RUNS
from tests.helpers.onnx_graphs import saved
from tests.helpers.requirements import needed

pytestmark = FRAMEWORKS_WARN
onnxruntime = needed("onnxruntime", "onnxruntime")
needed("litert", "ai_edge_litert.interpreter")


def graph(folder: Path, shape: list[int | str], axis: int, places: list[int | str] | np.ndarray) -> Path:
    """A file of one gather; its places are an input of some shape, or stated."""
    node = helper.make_node("GatherElements", ["x", "k"], ["y"], axis=axis)
    if isinstance(places, np.ndarray):
        return saved(folder / "m.onnx", [node], {"x": shape}, ["y"], {"k": places})
    return saved(folder / "m.onnx", [node], {"x": shape, "k": places}, ["y"], {}, types={"k": TensorProto.INT64})


@pytest.mark.parametrize("kind", ["stated", "input", "open batch", "of a part"])
@pytest.mark.parametrize("shape", [(2, 5), (2, 5, 3), (2, 4, 3, 6)])
def test_every_element_is_the_one_at_its_place(shape: tuple[int, ...], kind: str, tmp_path: Path) -> None:
    """Counted from either end of the axis; elements that are no numbers stay where they are."""
    rng = np.random.default_rng(len(shape))
    x = rng.standard_normal(shape).astype(np.float32)
    x.flat[3] = np.inf
    for axis in range(kind == "open batch", len(shape)):
        lengths = [2 if each == axis else length - (kind == "of a part" and length > 1) for each, length in enumerate(shape)]
        places = rng.integers(-shape[axis], shape[axis], lengths)
        opened = ["b"] if kind == "open batch" else []
        path = graph(
            tmp_path,
            [*opened, *shape[len(opened) :]],
            axis if kind == "input" else axis - len(shape),
            places if kind in ("stated", "of a part") else [*opened, *lengths[len(opened) :]],
        )
        rc.export_model(path, tmp_path / "m.tflite", force=True)
        feeds = {"x": x} if kind in ("stated", "of a part") else {"x": x, "k": places}
        (truth,) = onnxruntime.InferenceSession(path).run(None, feeds)
        (y,) = RUNS["tflite"](tmp_path / "m.tflite")([*feeds.values()])
        np.testing.assert_array_equal(y, truth)


def test_places_for_an_open_part_are_refused(tmp_path: Path) -> None:
    with pytest.raises(rc.RefusedError, match="places for an open part of an axis"):
        rc.export_model(graph(tmp_path, [3, 5], 1, ["k", 2]), tmp_path / "m.tflite")
