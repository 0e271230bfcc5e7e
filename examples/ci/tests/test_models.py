"""The models of this repository compute the same."""

from pathlib import Path

MODELS = Path(__file__).parent.parent / "models"


def test_the_export_computes_what_the_model_does(rnnconvert):
    rnnconvert.assert_equivalent(MODELS / "encoder.keras", MODELS / "encoder.onnx", layers=["encoder"])
