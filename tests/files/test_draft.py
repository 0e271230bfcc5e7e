"""The draft of a layout in the error for arrays that nobody's names describe: saved as it stands, it reads them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import rnnconvert as rc
from rnnconvert.cli.main import main
from rnnconvert.core import reference
from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import UnreadableError
from rnnconvert.files import draft
from rnnconvert.language import registry
from tests.helpers.drawn import drawn, looped
from tests.helpers.requirements import needed

H, X = 5, 3
GATES = {"lstm": 4, "gru": 3, "rnn": 1}


def stacked(kind: str, flipped: bool, biases: int, mark: str) -> dict[str, tuple[int, ...]]:
    """The arrays of a layer whose gates lie in one matrix."""
    wide = GATES[kind] * H
    shapes = {f"W{mark}in": (wide, X), f"W{mark}rec": (wide, H)}
    names = {1: ("bias",), 2: ("bias_in", "bias_rec"), 0: ()}[biases]
    return {name: shape[::-1] if flipped else shape for name, shape in shapes.items()} | dict.fromkeys(names, (wide,))


STACKED = [*itertools.product(GATES, (False, True), (0, 1, 2), ("_", "."), ("", "net/"))]


def refused(path: Path) -> list[str]:
    with pytest.raises(UnreadableError) as raised:
        rc.convert(path, path.with_suffix(".onnx"))
    return [line for line in raised.value.details if line]


@pytest.mark.parametrize("number", drawn(range(len(STACKED)), 8, "drafts"))
def test_a_draft_reads_stacked_gates(number: int, tmp_path: Path) -> None:
    kind, flipped, biases, mark, scope = STACKED[number]
    values = np.random.default_rng(number)
    shapes = stacked(kind, flipped, biases, mark)
    arrays: dict[str, Any] = {scope + name: values.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    np.savez(tmp_path / "own.npz", **arrays)
    first, *text = refused(tmp_path / "own.npz")
    assert "--layout layout.toml" in first
    (tmp_path / "layout.toml").write_text("\n".join(text))
    words = ["convert", str(tmp_path / "own.npz"), str(tmp_path / "a.onnx"), "--layout", str(tmp_path / "layout.toml")]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    (layer,) = rc.load(tmp_path / "a.onnx").layers.values()
    assert (layer.cell.kind, layer.input_size, layer.first.hidden_size) == (kind, X, H)
    every = np.concatenate([np.asarray(weights).ravel() for weights in layer.first.arrays.values()])
    assert all(np.isin(array, every).all() for name, array in arrays.items() if "W" in name)


@pytest.mark.parametrize(("kind", "biases"), [*itertools.product(GATES, (1, 2))])
def test_a_draft_reads_vectors_of_a_c_header(kind: str, biases: int, tmp_path: Path) -> None:
    """Matrices written row by row, as a person writes them for a microcontroller, beside a dense layer's."""
    values = np.random.default_rng(biases)
    shapes = {name.replace("in", "ih").replace("rec", "hh"): shape for name, shape in stacked(kind, False, biases, "_").items()}
    arrays = {name: values.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    dense: dict[str, Array] = {"fc_weight": values.normal(size=(2, H)), "fc_bias": values.normal(size=2)}
    rows = [
        f"const float {name}[{array.size}] = {{{', '.join(f'{number:.9g}f' for number in array.ravel())}}};"
        for name, array in {**dense, **arrays}.items()
    ]
    (tmp_path / "weights.h").write_text("// weights\n#pragma once\n" + "\n".join(rows))
    first, *text = refused(tmp_path / "weights.h")
    assert "--layout layout.toml" in first
    (tmp_path / "layout.toml").write_text("\n".join(text))
    words = ["convert", str(tmp_path / "weights.h"), str(tmp_path / "a.npz"), "--to", "mine", "--layout", str(tmp_path / "layout.toml")]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    with np.load(tmp_path / "a.npz") as written:
        assert {name.rpartition("/")[2] for name in written} == {*arrays, *dense}
        for name, array in arrays.items():
            np.testing.assert_array_equal(written[f"{kind}/{name}"], array)


FAMILIES = {"W{}": (H, X), "U{}": (H, H), "b{}": (H,)}


@pytest.mark.parametrize(("kind", "letters"), [("gru", "zrh"), ("gru", "urc"), ("lstm", "ifao")])
def test_a_draft_names_the_gates(kind: str, letters: str) -> None:
    arrays: dict[str, Array] = {name.format(g): np.zeros(shape) for g in letters for name, shape in FAMILIES.items()}
    text = draft.lines(arrays)
    assert sum(line == "[[layout]]" for line in text) == 1
    assert any(line.startswith("letters = ") and set(letters) <= set(line) for line in text)
    assert any("# check which letter is which gate" in line for line in text)
    assert any("reset_after" in line for line in text) == (kind == "gru")


@looped(8, scope=["", "state_dict.", "net.inner."], spelling=[str.lower, str.capitalize], head=[True, False])
def test_gates_called_by_their_words_are_drafted_and_the_command_reads_them(
    scope: str, spelling: Callable[[str], str], head: bool, tmp_path: Path
) -> None:
    draw = np.random.default_rng(3)
    words = [spelling(word) for word in ("input", "forget", "cell", "output")]
    arrays: dict[str, Any] = {f"{scope}{word}_gate.weight": draw.normal(size=(H, H + X)).astype("f4") for word in words}
    arrays |= {f"{scope}{word}_gate.bias": draw.normal(size=H).astype("f4") for word in words}
    arrays |= {f"{scope}head.weight": draw.normal(size=(2, H)), f"{scope}head.bias": draw.normal(size=2)} if head else {}
    np.savez(tmp_path / "own.npz", **arrays)
    first, *text = refused(tmp_path / "own.npz")
    (tmp_path / "layout.toml").write_text("\n".join(text))
    flags = first.partition("and give ")[2].replace("layout.toml", str(tmp_path / "layout.toml")).split()
    answer = CliRunner().invoke(main, ["convert", str(tmp_path / "own.npz"), str(tmp_path / "own.onnx"), *flags])
    registry.forget()
    assert answer.exit_code == 0, answer.output
    (layer,) = rc.load(tmp_path / "own.onnx").layers.values()
    for gate, word in zip("ifgo", words, strict=True):
        np.testing.assert_array_equal(layer.first.gates[gate].recurrent, arrays[f"{scope}{word}_gate.weight"][:, :H])


def test_two_layers_are_two_layouts_and_dense_layers_none() -> None:
    both = {f"{part}_{where}": np.zeros(shape) for where in ("enc", "dec") for part, shape in
            {"W": (4 * H, 1 if where == "enc" else H), "U": (4 * H, H), "b": (4 * H, 1)}.items()}  # fmt: skip
    text = draft.lines({**both, "W_R": np.zeros((1, H)), "b_R": np.zeros((1, 1)), "loss": np.zeros(20)})
    assert [line for line in text if line.startswith("name")] == ['name = "mine.lstm"', 'name = "mine.lstm_2"']
    assert sum('"U_enc", parts = "recurrent"' in line or '"U_dec", parts = "recurrent"' in line for line in text) == 2
    assert draft.lines({"a": np.zeros((64, 10)), "b": np.zeros(64), "c": np.zeros((10, 64)), "d": np.zeros(10)}) == []
    assert draft.lines({"a{": np.zeros((4 * H, H)), 'b"\n': np.zeros((4 * H, X)), "n": np.zeros((4, 4), int)}) == []


TUTORIAL = {"i2h.weight": (H, X), "i2h.bias": (H,), "h2h.weight": (H, H), "h2h.bias": (H,), "h2o.weight": (2, H), "h2o.bias": (2,)}
OLD_TUTORIAL = {"i2h.weight": (H, X + H), "i2h.bias": (H,), "i2o.weight": (7, X + H), "i2o.bias": (7,)}


@pytest.mark.parametrize("shapes", [TUTORIAL, OLD_TUTORIAL], ids=["two matrices", "one matrix"])
def test_the_cell_of_pytorchs_tutorial_is_named_and_described(shapes: dict[str, tuple[int, ...]], tmp_path: Path) -> None:
    """Source: docs.pytorch.org, char_rnn_classification_tutorial, of 2025 and of 2017."""
    arrays: dict[str, Any] = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
    np.savez(tmp_path / "a.npz", **arrays)
    text = refused(tmp_path / "a.npz")
    assert sum("i2h.weight" in line or '"weight", parts = "input recurrent"' in line for line in text) == 1
    assert any("# check the functions" in line for line in text)
    if shapes is OLD_TUTORIAL:
        assert any("tutorial's cell of this name computes none" in line for line in text)
        assert any("whether the state or the input comes first" in line for line in text)
    else:
        assert any('"h2h.bias", parts = "recurrent_bias"' in line for line in text)
    torch = needed("torch", "torch")
    torch.save({name: torch.ones(shape) for name, shape in shapes.items()}, tmp_path / "a.pt")
    assert refused(tmp_path / "a.pt")[-len(text) :] == text


@pytest.mark.parametrize("of", ["x2h", "h2h"])
def test_the_only_bias_of_two_scopes_is_described(of: str) -> None:
    """A Linear without a bias beside one with it: either may be the one for the input."""
    shapes = {"x2h.weight": (H, X), "h2h.weight": (H, H), f"{of}.bias": (H,)}
    text = draft.lines({name: np.zeros(shape) for name, shape in shapes.items()})
    assert f'  {{ name = "{of}.bias", parts = "input_bias", axes = "hidden" }},' in text


@pytest.mark.parametrize("scope", ["", "net/"])
def test_a_bias_under_a_name_that_the_layout_lacks_is_described_and_not_passed_over(scope: str, tmp_path: Path) -> None:
    """`Wx Wh b` of a program in NumPy: two of them are mlx.nn.LSTM's, which would leave the bias out."""
    values = np.random.default_rng(3)
    shapes = {"Wx": (4 * H, X), "Wh": (4 * H, H), "b": (4 * H,)}
    arrays: dict[str, Any] = {scope + name: values.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    np.savez(tmp_path / "own.npz", **arrays)
    with pytest.raises(rc.RefusedError, match="as long as its biases: describe the layer with") as raised:
        rc.convert(tmp_path / "own.npz", tmp_path / "a.onnx")
    first, *text = raised.value.details
    assert "layout=mlx.lstm" not in str(raised.value) and "shapes suggest this layout" in first
    (tmp_path / "layout.toml").write_text("\n".join(text))
    words = ["convert", str(tmp_path / "own.npz"), str(tmp_path / "a.onnx"), "--layout", str(tmp_path / "layout.toml")]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    (layer,) = rc.load(tmp_path / "a.onnx").layers.values()
    every = np.concatenate([np.asarray(array).ravel() for array in layer.first.arrays.values()])
    assert np.isin(arrays[scope + "b"], every).all()


def test_what_a_layer_keeps_besides_its_weights_is_no_layer() -> None:
    """A class in NumPy, pickled after a run: its last sequence and states, and the row that gives one number, lie beside its weights."""
    weights = {"input_weights": (H, X), "hidden_weights": (H, H), "output_weights": (1, H), "hidden_bias": (H,), "output_bias": (1,)}
    shapes = {"sequence": (3, X), "hidden_state": (3, 1), "outputs": (3, 1)}
    text = draft.lines({f"_RNNLayer__{name}": np.zeros(shape) for name, shape in {**shapes, **weights}.items()})
    assert sum(line == "[[layout]]" for line in text) == 1
    described = [line.split('"')[1].removeprefix("_RNNLayer__") for line in text if "parts = " in line]
    assert described == ["input_weights", "hidden_weights", "hidden_bias"]


def test_a_number_beside_a_layer_is_no_bias(tmp_path: Path) -> None:
    shapes = {"rnn.Wx": (4 * H, X), "rnn.Wh": (4 * H, H), "rnn.bias": (4 * H,), "rnn.step": ()}
    arrays: dict[str, Any] = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
    np.savez(tmp_path / "a.npz", **arrays)
    (warning,) = rc.load(tmp_path / "a.npz").unread
    assert "plus 'rnn.step'" in warning and "--set layout=mlx.lstm" in warning


@looped(12, number=range(60))
def test_a_draft_describes_every_array_or_says_that_it_leaves_it_out(number: int) -> None:
    random = np.random.default_rng([*b"left out", number])
    units, inputs = (int(random.integers(2, 7)) for _ in range(2))
    shapes = [(4 * units, inputs), (4 * units, units), (4 * units,), (units, inputs), (units, units), (3, units), (units,), (2, 2, 2)]
    names = ["wx.weight", "wh.weight", "wh.bias", "wmx.weight", "wmh.weight", "fc.weight", "scale", "conv.weight"]
    places = [at for at in range(len(names)) if at < 2 or random.random() < 0.6]
    arrays = {names[at]: np.zeros(shapes[at], np.float32) for at in places}
    text = draft.lines(arrays)
    assert text
    listed = {line.removeprefix("#   ").strip('"') for line in text if line.startswith("#   ")}
    tensors = {part for line in text if line.startswith("  { name = ") for part in [line.split('"')[1]]}
    assert listed.isdisjoint(tensors) and listed | tensors == {*arrays}


NEXT_TO_IT = {
    "wmx.weight": (H, X),
    "wmh.weight": (H, H),
    "peep.weight": (4 * H, H),
    "again.weight": (4 * H, X),
    "fc.weight": (2, H),
    "fc.bias": (2,),
    "out.weight": (X, H),
    "emb.weight": (9, X),
}
READS = [*itertools.product((*NEXT_TO_IT, "nothing"), (False, True), "./")]


@pytest.mark.parametrize("number", drawn(range(len(READS)), 12, "beside"))
def test_further_matrices_in_scopes_beside_a_layers_own_are_not_passed_over(number: int, tmp_path: Path) -> None:
    """A multiplicative LSTM of `Linear` layers: who follows the draft of its first two matrices is not given an LSTM of them."""
    name, flipped, mark = READS[number]
    shapes = {"wx.weight": (4 * H, X), "wh.weight": (4 * H, H), "wh.bias": (4 * H,)}
    further = {name: NEXT_TO_IT[name]} if name in NEXT_TO_IT else {}
    arrays: dict[str, Any] = {
        local.replace(".", mark): np.random.default_rng(number).normal(size=shape[::-1] if flipped else shape).astype(np.float32)
        for local, shape in {**shapes, **further}.items()
    }
    np.savez(tmp_path / "own.npz", **arrays)
    _, *text = refused(tmp_path / "own.npz")
    (tmp_path / "layout.toml").write_text("\n".join(text))
    words = ["convert", str(tmp_path / "own.npz"), str(tmp_path / "a.onnx"), "--layout", str(tmp_path / "layout.toml")]
    done = CliRunner().invoke(main, words)
    of_the_layer = name in ("wmx.weight", "wmh.weight", "peep.weight", "again.weight")
    assert (done.exit_code == 4 and repr(name.replace(".", mark)) in done.output) == of_the_layer, done.output
    assert (done.exit_code == 0) == (not of_the_layer), done.output
    if of_the_layer:
        done = CliRunner().invoke(main, [*words, "--set", "layout=mine.lstm"])
        assert done.exit_code == 0, done.output


@looped(10, ending=["npz", "json"], scope=["", "weights.", "lstm.cell."], order=["ifgo", "fiog"], head=[True, False])
def test_the_command_of_a_draft_reads_the_file_with_what_stands_beside_the_layer(
    ending: str, scope: str, order: str, head: bool, tmp_path: Path
) -> None:
    draw = np.random.default_rng(7)
    arrays: dict[str, Any] = {f"{scope}Q{gate}": draw.normal(size=(H + X, H)).astype("f4") for gate in order} | {
        f"{scope}b{gate}": draw.normal(size=H).astype("f4") for gate in order
    }
    arrays |= {f"{scope}Wy": draw.normal(size=(H, 1)), f"{scope}by": draw.normal(size=1)} if head else {}
    path = tmp_path / f"own.{ending}"
    if ending == "npz":
        np.savez(path, **arrays)
    else:
        document: dict[str, Any] = {"units": H, "words": ["a", "b"]}
        for name, array in arrays.items():
            *above, last = name.split(".")
            place = document
            for word in above:
                place = place.setdefault(word, {})
            place[last] = array.tolist()
        path.write_text(json.dumps(document))
    first, *text = refused(path)
    (tmp_path / "layout.toml").write_text("\n".join(text))
    _, _, flags = first.partition("and give ")
    command = ["convert", str(path), str(tmp_path / "own.onnx"), *flags.replace("layout.toml", str(tmp_path / "layout.toml")).split()]
    answer = CliRunner().invoke(main, command)
    registry.forget()
    assert answer.exit_code == 0, answer.output
    (layer,) = rc.load(tmp_path / "own.onnx").layers.values()
    np.testing.assert_array_equal(layer.first.gates["f"].recurrent, arrays[f"{scope}Qf"][:H].T)


@pytest.mark.parametrize(
    "names", [("kernel", "recurrent_kernel", "bias"), ("gru1_kernel", "gru1_rec_kernel", "gru1_bias"), ("Wz", "Uz", "bz")]
)
def test_two_rows_of_biases_are_those_of_keras(names: tuple[str, str, str], tmp_path: Path) -> None:
    """A GRU's arrays as Keras has them under other names: the draft, as it stands, computes what Keras's equations do."""
    values = np.random.default_rng(5)
    kernel, recurrent, bias = (values.uniform(-1, 1, shape) for shape in ((X, 3 * H), (H, 3 * H), (2, 3 * H)))
    path = tmp_path / "own.npz"
    arrays: dict[str, Any] = dict(zip(names, (kernel, recurrent, bias), strict=True))
    np.savez(path, **arrays)
    layout: dict[str, Any] = {}
    if names[0] != "kernel":
        _, *text = refused(path)
        (tmp_path / "layout.toml").write_text("\n".join(text))
        rc.add_layouts(tmp_path / "layout.toml")
    else:
        layout = {"activation": "tanh", "recurrent_activation": "sigmoid"}
    (layer,) = rc.load(path, **layout).layers.values()
    h, expected = np.zeros(H), []
    x = values.uniform(-1, 1, (7, X))
    for row in x:
        (xz, xr, xn), (hz, hr, hn) = np.split(row @ kernel + bias[0], 3), np.split(h @ recurrent + bias[1], 3)
        z, r = 1 / (1 + np.exp(-xz - hz)), 1 / (1 + np.exp(-xr - hr))
        h = z * h + (1 - z) * np.tanh(xn + r * hn)
        expected.append(h)
    np.testing.assert_allclose(reference.run(layer, x[:, None]).y[:, 0], expected, rtol=0, atol=1e-12)


def test_arrays_named_by_gates_are_drafted_whatever_else_their_names_say(tmp_path: Path) -> None:
    """A header in C++, `vector<vector<double>> W_i_f_weights`: i is the input, f the state, and the letter behind them the gate."""
    draw = np.random.default_rng(9)
    arrays = {f"W_{part}_{gate}_weights": draw.normal(size=(X if part == "i" else H, H)) for gate in "fico" for part in "if"}
    arrays |= {f"b{gate}_bias": draw.normal(size=H) for gate in "fico"} | {
        "fc_weight": draw.normal(size=(2, H)),
        "fc_bias": draw.normal(size=2),
    }
    rows = [
        f"vector<vector<double>> {name} = {{{', '.join('{' + ', '.join(map(repr, map(float, row))) + '}' for row in array)}}};"
        if array.ndim == 2
        else f"vector<double> {name} = {{{', '.join(map(repr, map(float, array)))}}};"
        for name, array in arrays.items()
    ]
    path = tmp_path / "own.h"
    path.write_text("#include <vector>\n" + "\n".join(rows))
    first, *text = refused(path)
    (tmp_path / "layout.toml").write_text("\n".join(text))
    flags = first.partition("and give ")[2].replace("layout.toml", str(tmp_path / "layout.toml")).split()
    answer = CliRunner().invoke(main, ["convert", str(path), str(tmp_path / "own.onnx"), *flags])
    assert answer.exit_code == 0, answer.output
    (layer,) = rc.load(tmp_path / "own.onnx").layers.values()
    for gate, letter in zip("ifgo", "ifco", strict=True):
        assert np.allclose(np.asarray(layer.first.arrays["input", gate]), arrays[f"W_i_{letter}_weights"].T)
        assert np.allclose(layer.first.gates[gate].recurrent, arrays[f"W_f_{letter}_weights"].T)


@pytest.mark.parametrize(
    "names", [("w_ih", "w_hh", "w_mih", "w_mhh", "b_ih", "b_hh"), ("rnn.w_x", "rnn.w_h", "rnn.w_mx", "rnn.w_mh", "rnn.b")]
)
def test_the_factors_of_a_multiplicative_lstm_are_no_layer(names: tuple[str, ...]) -> None:
    first, second, third, fourth, *biases = names
    shapes: dict[str, tuple[int, ...]] = {
        first: (4 * H, X),
        second: (4 * H, H),
        third: (H, X),
        fourth: (H, H),
        **dict.fromkeys(biases, (4 * H,)),
    }
    text = draft.lines({name: np.zeros(shape) for name, shape in shapes.items()})
    assert text.count("[[layout]]") == 1 and f'#   "{third}"' in text and f'#   "{fourth}"' in text
    assert any("multiplicative LSTM" in line and third in line and fourth in line for line in text)


def test_a_second_bias_is_the_states_where_its_name_says_so() -> None:
    """haste's GRU: `bias` and `recurrent_bias`, of which the draft once left out the first."""
    shapes = {"kernel": (X, 3 * H), "recurrent_kernel": (H, 3 * H), "bias": (3 * H,), "recurrent_bias": (3 * H,)}
    text = draft.lines({f"rnn.{name}": np.zeros(shape) for name, shape in shapes.items()})
    assert '  { name = "bias", parts = "input_bias", axes = "(gate hidden)" },' in text
    assert '  { name = "recurrent_bias", parts = "recurrent_bias", axes = "(gate hidden)" },' in text
