"""unpack names every fact that arrays in memory leave open, and takes each from the caller."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core.weights import Recurrent
from rnnconvert.language import registry
from rnnconvert.language.layout import Layout, Sizes
from tests.helpers.sources import stack
from tests.helpers.stacks import random_stack

APART = ("keras", "tensorflow1")
"""Frameworks that keep the two directions of a layer in two sets of arrays."""
NAMED = [
    layout
    for name in registry.cards()
    for layout in registry.layouts_of(name)
    if not layout.flat and layout.writable and len(layout.tensors) > 1
]


def held(layout: Layout, two: bool = False) -> Recurrent:
    """A layer of the layout's own cell."""
    biases = layout.holds.biases[0]
    parts = {"input", "recurrent"}
    parts |= {f"{part}_bias" for part in ("input", "recurrent") if biases in (part, "both")}
    sizes = Sizes(layout.kind, 3, 4, num_directions=1 + two, parts=frozenset(parts))
    return random_stack(sizes, 1, np.float32, layout.cell)


def open_facts(layout: Layout, two: bool = False) -> set[str]:
    """The options that a layout's own data leave to the caller, told a second time."""
    holds, facts = layout.holds, set()
    many = {"any"} & {*map(str, holds.activations)} or len(holds.activations) > 1
    if many:
        plain = {*map(str, holds.activations)} <= {"tanh", "relu"}
        facts.add("nonlinearity" if plain else "activation")
    if layout.kind != "rnn" and (len(holds.gate_activations) > 1 or "any" in holds.gate_activations):
        facts.add("recurrent_activation")
    if layout.kind == "lstm" and holds.output_activation != "same":
        facts.add("output_activation")
    facts |= {"forget_bias"} if "f" in holds.chosen else set()
    facts |= {"input_forget"} if holds.coupled else set()
    facts |= {{"cell": "cell_clip", "projection": "proj_clip"}.get(clip, "clip") for clip in holds.open_clips}
    facts |= {"go_backwards"} if holds.reverse and not two else set()
    facts |= {"merge_mode"} if two and len(holds.merges) > 1 else set()
    return facts


MORE = {"lux.rnn": {"init_state"}, "lux.rnn_0_5": {"init_state"}, "burn.lstm": {"cell_clip"}}
"""What a single room asks by itself: Burn's clip has a usual value, none, which a layout's clips do not."""


def asked(arrays: Any, layout: Layout, **options: Any) -> dict[str, str]:
    """What unpack warns of: each option with what is assumed."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        rc.unpack(arrays, layout.framework, layout=layout.name, **options)
    assert all(warning.category is rc.AssumptionWarning and warning.filename == __file__ for warning in caught)
    texts = [str(warning.message).partition(": ")[2].partition(" is assumed")[0] for warning in caught]
    return dict(text.split("=", 1) for text in texts)


@pytest.mark.parametrize("layout", NAMED, ids=lambda entry: entry.name)
def test_every_open_fact_is_named_and_taken(layout: Layout) -> None:
    for two in (False, True):
        if two and (layout.holds.directions < 2 or layout.framework in APART):
            continue
        arrays = rc.pack(held(layout, two), layout.name)
        answers = asked(arrays, layout, bidirectional=two)
        more = MORE.get(layout.name, set())
        assert set(answers) - more == open_facts(layout, two)
        for option, assumed in answers.items():
            assert option not in asked(arrays, layout, bidirectional=two, **{option: assumed})
        assert not asked(arrays, layout, bidirectional=two, **answers)


def test_what_is_said_is_what_is_read() -> None:
    arrays = {"kernel": np.ones((7, 16), np.float32), "bias": np.ones(16, np.float32)}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert rc.unpack(arrays, "tensorflow1").cell.constants == {"f": 1.0}
    assert any("forget_bias=1.0 is assumed" in str(warning.message) for warning in caught)
    options: dict[str, Any] = {"forget_bias": 0.5, "cell_clip": 2, "proj_clip": "none", "activation": "relu"}
    cell = rc.unpack(arrays, "tensorflow1", **options).cell
    assert (cell.constants, cell.activation.name) == ({"f": 0.5}, "relu")
    assert cell.clips == (rc.Clip("cell", -2.0, 2.0),)
    by_name = rc.pack(stack("lstm", parts=frozenset({"input", "recurrent", "input_bias"})), "keras")
    plain: dict[str, Any] = {"activation": "tanh", "recurrent_activation": "sigmoid"}
    with pytest.warns(rc.AssumptionWarning, match="go_backwards=false is assumed"):
        assert rc.unpack(by_name, "keras", **plain).output_order == "time"
    turned = rc.unpack(by_name, "keras", **plain, go_backwards=True)
    assert turned.first.reverse and turned.output_order == "processing"


def test_a_cell_settles_what_it_states_and_no_more() -> None:
    cell = rc.Cell("lstm", coupled="f")
    arrays = rc.pack(stack("lstm"), "onnx")
    with pytest.warns(rc.AssumptionWarning, match="go_backwards") as caught:
        assert rc.unpack(arrays, "onnx", cell).cell == cell
    assert len(caught) == 1
    two = rc.pack(stack("lstm", num_directions=2), "onnx")
    with pytest.warns(rc.AssumptionWarning, match="merge_mode=concat is assumed") as caught:
        rc.unpack(two, "onnx", cell)
    assert len(caught) == 1
    assert rc.unpack(two, "onnx", cell, merge_mode="sum").layers[0].merge == "sum"


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"cell_clip": 3}, "cell_clip=3 decides nothing"),
    ({"activationn": "relu"}, "Did you mean 'activation'"),
    ({"nonlinearity": "selu"}, "nonlinearity cannot be 'selu'"),
    ({"layout": "pytorch.lstm"}, "not those of pytorch"),
    ({"layout": "keras.lstm"}, "has no layout 'keras.lstm'. Choose pytorch.lstm"),
    ({"cell": "lstm"}, "Give a Cell, as in cell=rnnconvert.Cell"),
    ({"cell": 3}, "cell is 3, expected a Cell or a text"),
]


@pytest.mark.parametrize(("options", "words"), WRONG)
def test_what_decides_nothing_is_an_error(options: dict[str, Any], words: str) -> None:
    arrays = rc.pack(stack("rnn"), "pytorch")
    with pytest.raises(rc.UsageError, match=words):
        rc.unpack(arrays, "pytorch", **options)


def test_arrays_that_fit_several_layouts_are_asked_about() -> None:
    arrays = rc.pack(held(registry.layout_named("keras.gru_reset_before")), "keras")
    assert isinstance(arrays, dict)
    del arrays["bias"]
    with pytest.raises(rc.UsageError, match="Choose with layout="):
        rc.unpack(arrays, "keras")


def test_weights_are_floating_point_numbers() -> None:
    arrays = rc.pack(stack("rnn"), "pytorch")
    assert isinstance(arrays, dict)
    for other in (np.int32, np.complex64, object, "U8"):
        with pytest.raises(rc.UsageError, match=r"'weight_hh_l0' is of type .*not of floating-point"):
            rc.unpack({**arrays, "weight_hh_l0": arrays["weight_hh_l0"].astype(other)}, "pytorch")
    buffer = rc.pack(stack("lstm"), "cudnn")
    sizes: dict[str, Any] = {"input_size": 3, "hidden_size": 4}
    with pytest.raises(rc.UsageError, match=r"one axis, but this array has the shape \(2, .*ravel"):
        rc.unpack(np.stack([buffer, buffer]), "cudnn", "lstm", **sizes)
    with pytest.raises(rc.UsageError, match="of type int32"):
        rc.unpack(buffer.astype(np.int32), "cudnn", "lstm", **sizes)


@pytest.mark.parametrize("format", ["knet", "persistent_rnn"])
def test_a_vector_in_a_dictionary_is_read_with_its_sizes(format: str) -> None:
    layer = random_stack(Sizes("rnn", 3, 4), 1, np.float32, rc.Cell("rnn", activation=rc.Activation("relu")))
    vector = rc.pack(layer, format)
    more: dict[str, Any] = {"num_layers": 1, "bidirectional": False, "input_mode": "linear"} if format == "knet" else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rc.AssumptionWarning)
        unpacked = rc.unpack(vector, format, "rnn_relu", hidden_size=4, **more)
    assert unpacked.input_size == 3 and unpacked.cell == layer.cell
    with pytest.raises(rc.UsageError, match="does not describe its sizes"):
        rc.unpack(vector, format)


@pytest.mark.parametrize("layout", [entry for entry in NAMED if entry.name.endswith((".lstm", ".lstm_cell"))], ids=lambda entry: entry.name)
@pytest.mark.filterwarnings("ignore::rnnconvert.AssumptionWarning")
def test_a_layer_of_several_types_is_refused(layout: Layout) -> None:
    arrays: Any = rc.pack(held(layout), layout.name)
    last = list(arrays)[-1]
    arrays[last] = arrays[last].astype("float64")
    with pytest.raises(rc.UsageError, match=rf"is float32, '{last}' is float64.*astype\('float64'\)"):
        rc.unpack(arrays, layout.framework, layout=layout.name)
    arrays[last] = arrays[last].astype(">f4")
    rc.unpack({key: np.asarray(value) for key, value in arrays.items()}, layout.framework, layout=layout.name)
