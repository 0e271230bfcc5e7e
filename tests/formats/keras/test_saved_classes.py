"""A SavedModel with a layer of its author's own class: what its graph lacks is the reason, since its graph is the way out."""

import pytest

import rnnconvert as rc
from rnnconvert.formats.keras.describe import model


def _raising(feature):
    def describe(*_):
        raise rc.RefusedError(feature, "a model written as code", "no line is known for it", "", "")

    return describe


@pytest.mark.parametrize(
    "feature, reason", [("a layer of class 'Spectra'", "the operator RFFT"), ("return_sequences of a loop", "return_sequences of a loop")]
)
def test_the_reason_of_the_graph_is_given_for_a_class(feature, reason, tmp_path, monkeypatch):
    monkeypatch.setattr(model, "_layered", _raising(feature))
    monkeypatch.setattr(model.served, "describe", _raising("the operator RFFT"))
    with pytest.raises(rc.RefusedError) as caught:
        model.describe(tmp_path)
    assert caught.value.feature == reason
    assert "SavedModel" not in caught.value.remedy
