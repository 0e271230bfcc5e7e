"""Chainer's files: those that chainer.serializers wrote, those that it reads, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.containers import npz_file
from rnnconvert.core import reference
from rnnconvert.core.arrays import Array
from tests.helpers import corpus
from tests.helpers.frameworks import found_by
from tests.helpers.judging import batch_first
from tests.helpers.requirements import need
from tests.helpers.sources import checkpoint, stack, uniform
from tests.helpers.stacks import BOTH, PLAIN


def by_chainer(folder: Path, script: str) -> dict[str, Array]:
    """What a script under Chainer's own Python leaves in `found`: arrays by name."""
    return found_by(
        "chainer",
        "import chainer, chainer.links as L\nfrom chainer import serializers\nnp.random.seed(1)\nfound = {}\n"
        "def filled(link):\n    for p in link.params(): p.array[...] = np.random.uniform(-0.7, 0.7, p.shape)\n    return link\n"
        f"x = np.random.uniform(-1, 1, (2, 5, 3)).astype('float32')\nfound['x'] = x\n{script}",
        folder,
    )


N_STEP = "found['y'] = np.stack([y.array for y in m(*[None] * {}, [chainer.Variable(one) for one in x])[-1]])"
STATEFUL = "found['y'] = np.stack([m(x[:, t]).array for t in range(5)], 1)"
SAVED = {
    "n_step_lstm": ("L.NStepLSTM(2, 3, 4, 0.0)", N_STEP.format(2)),
    "n_step_bi_gru": ("L.NStepBiGRU(2, 3, 4, 0.0)", N_STEP.format(1)),
    "n_step_bi_tanh": ("L.NStepBiRNNTanh(1, 3, 4, 0.0)", N_STEP.format(1)),
    "lstm": ("L.LSTM(3, 4)", STATEFUL),
}


@pytest.mark.parametrize("suffix", ["npz", "h5"])
@pytest.mark.parametrize("way", SAVED)
def test_chainers_files_give_what_chainer_gave(way: str, suffix: str, tmp_path: Path) -> None:
    link, run = SAVED[way]
    save = "npz" if suffix == "npz" else "hdf5"
    script = f"m = filled({link})\nserializers.save_{save}('a.{suffix}', chainer.Chain(rnn=m, out=L.Linear(4, 2)))\n{run}"
    outputs = by_chainer(tmp_path, script)
    settings = ["nonlinearity=tanh"] if "tanh" in way else []
    read = rc.load(tmp_path / f"a.{suffix}", "chainer", settings=[*settings, *(["bidirectional=true"] if "bi" in way else [])])
    assert list(read.layers) == ["rnn"] and not read.questions and not read.warnings
    assert set(read.tensors) == {"out/W", "out/b"}
    np.testing.assert_allclose(batch_first(read.layers["rnn"], outputs["x"]), outputs["y"], rtol=0, atol=3e-7)


def test_a_stateful_gru_begins_without_its_biases_of_the_state(tmp_path: Path) -> None:
    """With a state of zeros it is what its arrays say; without one its first step leaves U's biases out."""
    script = (
        "m = filled(L.StatefulGRU(3, 4))\nserializers.save_npz('a.npz', m)\n"
        "found['bare'] = np.stack([m(x[:, t]).array for t in range(5)], 1)\n"
        "m.set_state(chainer.Variable(np.zeros((2, 4), 'float32')))\n" + STATEFUL
    )
    outputs = by_chainer(tmp_path, script)
    read = rc.load(tmp_path / "a.npz", "chainer")
    y = batch_first(read.layers[""], outputs["x"])
    np.testing.assert_allclose(y, outputs["y"], rtol=0, atol=3e-7)
    assert np.abs(y - outputs["bare"]).max() > 0.1
    assert any("StatefulGRU" in warning for warning in read.warnings)


def test_diagonal_peepholes_are_read_and_others_refused(tmp_path: Path) -> None:
    script = (
        "m = filled(L.StatefulPeepholeLSTM(3, 4))\nserializers.save_npz('whole.npz', m)\n"
        "for p in (m.peep_i, m.peep_f, m.peep_o): p.W.array *= np.eye(4)\nserializers.save_npz('a.npz', m)\n" + STATEFUL
    )
    outputs = by_chainer(tmp_path, script)
    (layer,) = rc.load(tmp_path / "a.npz").layers.values()
    assert layer.first.has_peepholes
    np.testing.assert_allclose(batch_first(layer, outputs["x"]), outputs["y"], rtol=0, atol=3e-7)
    with pytest.raises(rc.RefusedError, match="'peep_f/W' makes a gate of one unit depend"):
        rc.load(tmp_path / "whole.npz")


@pytest.mark.parametrize("suffix", [".npz", ".h5"])
@pytest.mark.parametrize(
    ("link", "layout", "run", "form"),
    [
        ("L.NStepBiLSTM(2, 3, 4, 0.0)", "", N_STEP.format(2), {"kind": "lstm", "num_layers": 2, "num_directions": 2}),
        ("L.LSTM(3, 4)", "lstm", STATEFUL, {"kind": "lstm", "parts": PLAIN | {"input_bias"}}),
        ("L.NStepGRU(1, 3, 4, 0.0)", "", N_STEP.format(1), {"kind": "gru", "parts": BOTH}),
        ("L.NStepRNNTanh(1, 3, 4, 0.0)", "", N_STEP.format(1), {"kind": "rnn", "parts": BOTH}),
    ],
)
def test_chainer_reads_what_is_written(link: str, layout: str, run: str, form: dict[str, Any], suffix: str, tmp_path: Path) -> None:
    layer = stack(**form)
    asked: dict[str, Any] = {"layout": layout} if layout else {}
    (note,) = rc.save(checkpoint(layer), tmp_path / f"a{suffix}", "chainer", **asked).notes
    assert note.endswith(f"has the arrays of {link.replace('L.', 'chainer.links.')}")
    x = uniform(5, 2, 5, 3)
    np.save(tmp_path / "x.npy", x)
    load = "load_npz" if suffix == ".npz" else "load_hdf5"
    outputs = by_chainer(tmp_path, f"m = {link}\nserializers.{load}('a{suffix}', m)\nx = np.load('x.npy')\n{run}")
    np.testing.assert_allclose(outputs["y"], batch_first(layer, x), rtol=0, atol=3e-7)


def test_a_link_without_its_sizes_is_no_layer(tmp_path: Path) -> None:
    """Parameters that were never made are saved as None: an array without numbers in HDF5, an object in .npz."""
    script = "m = L.LSTM(None, 4)\nserializers.save_npz('a.npz', m)\nserializers.save_hdf5('a.h5', m)"
    by_chainer(tmp_path, script)
    for name in ("a.npz", "a.h5"):
        with pytest.raises(rc.RnnConvertError, match=r"no recurrent layer|not every recurrent layer in it can be read"):
            rc.convert(tmp_path / name, tmp_path / "b.pt", source_format="chainer")


def test_gates_of_other_widths_are_said(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for name, shape in (("upward/W", (16, 3)), ("upward/b", (16,)), ("lateral/W", (16, 5))):
            file[name] = np.ones(shape, "f4")
    checkpoint = rc.load(tmp_path / "a.h5", "chainer")
    assert not checkpoint.layers and "do not fit together" in checkpoint.warnings[0]


def test_two_links_before_a_function_are_a_layer_if_the_caller_says_so(tmp_path: Path) -> None:
    """A network of Chainer 1, whose pickle is not run: the same arrays as save_npz writes them."""
    need("corpus", corpus.absent())
    recorded = np.load(corpus.FOLDER / "chainer-char-rnn" / "charrnn_epoch_15.88.ref.npz")
    arrays = {key[3:].replace(".", "/"): recorded[key] for key in recorded.files if key.startswith("w__")}
    npz_file.write(tmp_path / "a.npz", arrays)
    checkpoint = rc.load(tmp_path / "a.npz", "chainer")
    assert not checkpoint.layers and "--set l1:layout=chainer.function_lstm" in checkpoint.warnings[0]
    layers = rc.load(tmp_path / "a.npz", "chainer", layout="chainer.function_lstm").layers
    assert list(layers) == ["l1", "l2"]
    x = recorded["x"]
    for name in layers:
        outputs = reference.run(layers[name], x)
        np.testing.assert_allclose(outputs.y, recorded[f"h{name[1]}_seq"], rtol=0, atol=5e-6)
        np.testing.assert_allclose(outputs.cell[0], recorded[f"c{name[1]}"], rtol=0, atol=2e-5)
        x = recorded[f"h{name[1]}_seq"]


def test_a_pickle_is_not_run(tmp_path: Path) -> None:
    (tmp_path / "a.chainermodel").write_bytes(b"ccopy_reg\n_reconstructor\np1\n(cchainer.link\nChain\np2\n")
    (tmp_path / "b.pkl").write_bytes(b"\x80\x02cchainer.link\nChain\nq\x01.")
    for name in ("a.chainermodel", "b.pkl"):
        with pytest.raises(rc.UnreadableError, match=r"save_npz\(path, link\)"):
            rc.load(tmp_path / name)
    need("corpus", corpus.absent())
    with pytest.raises(rc.UnreadableError, match="pickle of a link of Chainer"):
        rc.load(corpus.FOLDER / "chainer-char-rnn" / "charrnn_epoch_15.88.chainermodel")
