"""Paddle's .pdparams: files that Paddle wrote, files that it reads, and what is damaged."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core.arrays import BFLOAT16, Array
from rnnconvert.formats.paddle import paddle_params
from tests.helpers.frameworks import found_by
from tests.helpers.judging import batch_first
from tests.helpers.sources import checkpoint, stack, uniform, write
from tests.helpers.stacks import BOTH, PLAIN


def by_paddle(folder: Path, script: str) -> dict[str, Array]:
    """What a script under Paddle's own Python leaves in `found`: arrays by name."""
    return found_by("paddle", f"import paddle\nfrom paddle import nn\nfound = {{}}\npaddle.seed(1)\n{script}", folder)


# Each way of saving: the layer, what is saved and how, and what the layer is called in the file.
RENAMED = "{'1.' + k: v for k, v in m.state_dict().items()}"
NESTED = "{'epoch': 3, 'model': m.state_dict(), 'more': [paddle.ones([2])]}"
SAVED = {
    "stack": ("nn.GRU(3, 4, 2, direction='bidirect')", "m.state_dict()", "4", ""),
    "projected": ("nn.LSTM(3, 4, 2, direction='bidirect', proj_size=2)", "m.state_dict()", "4", ""),
    "old protocol": ("nn.LSTM(3, 4)", "m.state_dict()", "2", ""),
    "nested": ("nn.LSTM(3, 4)", NESTED, "4", "model"),
    "cell": ("nn.RNN(nn.GRUCell(3, 4))", "m.state_dict()", "4", "cell"),
    "cell under a number": ("nn.RNN(nn.LSTMCell(3, 4))", RENAMED, "4", "1.cell"),
    "bare cell": ("nn.RNN(nn.LSTMCell(3, 4))", "m.cell.state_dict()", "4", ""),
}


@pytest.mark.parametrize("way", SAVED)
def test_paddles_files_give_what_paddle_gave(way: str, tmp_path: Path) -> None:
    module, saved, protocol, name = SAVED[way]
    script = f"m = {module}\npaddle.save({saved}, 'a.pdparams', protocol={protocol})\n"
    script += "x = paddle.randn([2, 5, 3])\nfound['x'] = x.numpy()\nfound['y'] = m(x)[0].numpy()"
    results = by_paddle(tmp_path, script)
    read = rc.load(tmp_path / "a.pdparams")
    assert list(read.layers) == [name] and not read.warnings
    assert {question.option for question in read.questions} == ({"go_backwards"} if name.endswith("cell") else set())
    np.testing.assert_allclose(batch_first(read.layers[name], results["x"]), results["y"], rtol=0, atol=3e-7)
    assert list(read.tensors) == (["more.0"] if way == "nested" else [])


def test_the_cells_of_two_directions_read_both_ways(tmp_path: Path) -> None:
    script = (
        "x = paddle.randn([2, 5, 3]); found['x'] = x.numpy()\n"
        "for name, other in (('same', nn.GRUCell(3, 4)), ('wide', nn.GRUCell(3, 6)), ('kind', nn.LSTMCell(3, 4))):\n"
        "    m = nn.BiRNN(nn.GRUCell(3, 4), other)\n"
        "    paddle.save({'enc.' + k: v for k, v in m.state_dict().items()}, name + '.pdparams')\n"
        "    if name == 'same': found[name] = m(x)[0].numpy()\n"
    )
    results = by_paddle(tmp_path, script)
    (layer,) = rc.load(tmp_path / "same.pdparams").layers.items()
    assert layer[0] == "enc"
    np.testing.assert_allclose(batch_first(layer[1], results["x"]), results["same"], rtol=0, atol=3e-7)
    for name in ("wide", "kind"):
        read = rc.load(tmp_path / f"{name}.pdparams").layers
        assert [layer.first.reverse for layer in read.values()] == [False, True]


def test_a_wrapped_cell_may_read_from_the_end(tmp_path: Path) -> None:
    script = "m = nn.RNN(nn.GRUCell(3, 4), is_reverse=True)\npaddle.save(m.state_dict(), 'a.pdparams')\n"
    script += "x = paddle.randn([2, 5, 3])\nfound['x'] = x.numpy()\nfound['y'] = m(x)[0].numpy()"
    results = by_paddle(tmp_path, script)
    (question,) = rc.load(tmp_path / "a.pdparams").questions
    assert (question.option, question.assumed) == ("go_backwards", "false")
    read = rc.load(tmp_path / "a.pdparams", go_backwards=True)
    assert not read.questions
    np.testing.assert_allclose(batch_first(read.layers["cell"], results["x"]), results["y"], rtol=0, atol=3e-7)


def test_a_list_of_layers_is_told_from_a_stack(tmp_path: Path) -> None:
    arrays = paddle_params.read(write(tmp_path / "a.pdparams", stack("gru", num_layers=2))).arrays
    assert not rc.load(tmp_path / "a.pdparams").warnings
    paddle_params.write(tmp_path / "b.pdparams", {name: array for name, array in arrays.items() if ".cell." in name})
    (warning,) = rc.load(tmp_path / "b.pdparams").warnings
    assert "it may be a LayerList of paddle.nn.RNN" in warning


def test_the_second_names_of_paddle_are_not_believed(tmp_path: Path) -> None:
    """Paddle names the forward projection weight_ih_l0_reverse."""
    script = "m = nn.LSTM(3, 4, direction='bidirect', proj_size=2)\nfor k, v in m.state_dict().items(): found[k] = v.numpy()"
    arrays = by_paddle(tmp_path, script)
    np.testing.assert_array_equal(arrays["weight_ih_l0_reverse"], arrays["0.cell_fw.weight_ho"])
    paddle_params.write(tmp_path / "a.pdparams", arrays)
    layer = rc.load(tmp_path / "a.pdparams").layers[""]
    np.testing.assert_array_equal(np.asarray(layer[0, 1].arrays["input", "i"]), arrays["0.cell_bw.weight_ih"][:4])
    without = {name: array for name, array in arrays.items() if "cell" not in name}
    paddle_params.write(tmp_path / "b.pdparams", without)
    with pytest.raises(rc.RefusedError, match="do not fit together"):
        rc.convert(tmp_path / "b.pdparams", tmp_path / "c.pt", source_format="paddle")


def test_second_names_alone_are_read(tmp_path: Path) -> None:
    arrays = {f"rnn.{name}_l0{side}": uniform(1, *shape) for side in ("", "_reverse") for name, shape in
              (("weight_ih", (12, 3)), ("weight_hh", (12, 4)), ("bias_ih", (12,)), ("bias_hh", (12,)))}  # fmt: skip
    paddle_params.write(tmp_path / "a.pdparams", arrays)
    assert rc.load(tmp_path / "a.pdparams").layers["rnn"].describe().startswith("GRU (reset after), 1 layer, bidirectional")


@pytest.mark.parametrize(
    "form",
    [
        {"kind": "lstm", "num_layers": 2, "num_directions": 2},
        {"kind": "gru", "parts": PLAIN},
        {"kind": "rnn", "num_layers": 2, "parts": PLAIN | {"input_bias"}},
    ],
)
def test_paddle_finds_every_array_in_what_is_written(form: dict[str, Any], tmp_path: Path) -> None:
    layer = stack(**form)
    (note,) = rc.save(checkpoint(layer), tmp_path / "a.pdparams").notes
    module = note.rpartition("has the arrays of paddle.")[2]
    x = uniform(5, 2, 5, 3)
    np.save(tmp_path / "x.npy", x)
    results = by_paddle(
        tmp_path,
        f"m = {module}\nmissing, unexpected = m.set_state_dict(paddle.load('a.pdparams'))\nassert not missing and not unexpected\n"
        "found['y'] = m(paddle.to_tensor(np.load('x.npy')))[0].numpy()",
    )
    np.testing.assert_allclose(results["y"], batch_first(layer, x), rtol=0, atol=3e-7)


def test_a_projection_is_written_under_the_names_of_its_cells(tmp_path: Path) -> None:
    layer = stack("lstm", projection_size=2, num_directions=2, parts=BOTH | {"projection"})
    write(tmp_path / "a.pdparams", layer)
    x = uniform(5, 2, 5, 3)
    np.save(tmp_path / "x.npy", x)
    results = by_paddle(
        tmp_path,
        "m = nn.LSTM(3, 4, direction='bidirect', proj_size=2)\n"
        "missing, unexpected = m.set_state_dict(paddle.load('a.pdparams'))\nassert not unexpected, unexpected\n"
        "assert all('_l0' in name for name in missing), missing\n"
        "found['y'] = m(paddle.to_tensor(np.load('x.npy')))[0].numpy()",
    )
    np.testing.assert_allclose(results["y"], batch_first(layer, x), rtol=0, atol=3e-7)


def test_element_types_come_and_go(tmp_path: Path) -> None:
    arrays: dict[str, Array] = {
        str(np.dtype(t)): np.arange(6).reshape(2, 3).astype(t) for t in ("f2", "f4", "f8", "i4", "i8", "u1", "?", BFLOAT16)
    }
    arrays["scalar"], arrays["none"], arrays["ü"] = np.array(2, "f4"), np.zeros((0, 2), "f4"), np.ones(300, "f4")
    paddle_params.write(tmp_path / "a.pdparams", arrays)
    again = paddle_params.read(tmp_path / "a.pdparams").arrays
    assert {n: (a.dtype, a.shape, a.tobytes()) for n, a in again.items()} == {n: (a.dtype, a.shape, a.tobytes()) for n, a in arrays.items()}
    tensors = by_paddle(tmp_path, "t = paddle.load('a.pdparams')\nfor k, v in t.items(): found[k] = v.astype('float64').numpy()")
    for name, array in arrays.items():
        np.testing.assert_array_equal(tensors[name].reshape(array.shape), array.astype("f8"), name)
    script = "paddle.save({'b': paddle.to_tensor([1.5, -3]).astype('bfloat16')}, 'b.pdparams')"
    by_paddle(tmp_path, script)
    assert paddle_params.read(tmp_path / "b.pdparams").arrays["b"].astype("f4").tolist() == [1.5, -3]


def test_carried_arrays_and_names_come_back(tmp_path: Path) -> None:
    script = "m = nn.Sequential(nn.Embedding(7, 3), nn.LSTM(3, 4), nn.Linear(4, 2))\npaddle.save(m.state_dict(), 'a.pdparams')"
    script += "\nfor k, v in m.state_dict().items(): found[k] = v.numpy()"
    arrays = by_paddle(tmp_path, script)
    rc.convert(tmp_path / "a.pdparams", tmp_path / "b.pdparams")
    again = paddle_params.read(tmp_path / "b.pdparams").arrays
    assert set(again) == set(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(again[name], array, name)


# Damage ---------------------------------------------------------------------------------------------


class Evil:
    """What a pickle may ask for."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (eval, ("1 / 0",))


def test_no_code_of_a_file_is_run(tmp_path: Path) -> None:
    (tmp_path / "a.pdparams").write_bytes(pickle.dumps({"w": Evil()}, 4))
    with pytest.raises(rc.UnreadableError, match="eval"):
        rc.load(tmp_path / "a.pdparams", "paddle")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([1, 2], "not a pickle of one dictionary"),
        ({"UnpackBigParamInfor@@": {}}, "in parts"),
        ({"w": np.ones(2, object)}, "no recurrent layer"),
    ],
)
def test_what_is_wrong_is_said(value: Any, message: str, tmp_path: Path) -> None:
    (tmp_path / "a.pdparams").write_bytes(pickle.dumps(value, 4))
    with pytest.raises(rc.UnreadableError, match=message):
        rc.convert(tmp_path / "a.pdparams", tmp_path / "b.npz", source_format="paddle", target_format="chainer")
    assert not (tmp_path / "b.npz").exists()


def test_every_truncation_is_unreadable(tmp_path: Path) -> None:
    path = write(tmp_path / "a.pdparams", stack("gru"))
    content = path.read_bytes()
    for length in [*range(0, 200), *range(200, len(content), 37), len(content) - 1]:
        path.write_bytes(content[:length])
        with pytest.raises(rc.UnreadableError):
            paddle_params.read(path)
    path.write_bytes(content + b"\0")
    with pytest.raises(rc.UnreadableError):
        paddle_params.read(path)


def test_numpys_own_pickler_reads_what_is_written(tmp_path: Path) -> None:
    arrays = {"a": np.arange(6, dtype="f4").reshape(2, 3), "b": np.ones(3, "?")}
    paddle_params.write(tmp_path / "a.pdparams", arrays)
    unpickled = pickle.load(io.BytesIO((tmp_path / "a.pdparams").read_bytes()))
    for name, array in arrays.items():
        np.testing.assert_array_equal(unpickled[name], array)


def test_one_list_in_very_many_places_is_unreadable(tmp_path: Path) -> None:
    value: list[Any] = []
    for _ in range(14):
        value = [value] * 10
    (tmp_path / "a.pdparams").write_bytes(pickle.dumps({"a": value}, 4))
    with pytest.raises(rc.UnreadableError, match="more than 1000000 entries"):
        paddle_params.read(tmp_path / "a.pdparams")
