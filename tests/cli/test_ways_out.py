"""Each way out that a refusal proposes is run on the layer at hand, and each that a command names is typed, on the file at hand: one that
ends in the same refusal, or in another one that it was to avoid, fails.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core.cells import RELU, Cell
from rnnconvert.core.errors import RefusedError
from rnnconvert.core.remedies import Flag, Setting
from rnnconvert.core.weights import Recurrent
from rnnconvert.language import registry
from rnnconvert.language.layout import Sizes
from tests import ROOT
from tests.helpers.drawn import drawn, each
from tests.helpers.stacks import BOTH, random_stack
from tests.helpers.ways_out import FAULT, REFUSALS, _left_out_silently, answered, followed

LSTM, GRU, RNN = (Sizes(kind, 3, 4, parts=BOTH) for kind in ("lstm", "gru", "rnn"))
LAYERS = {
    "lstm": random_stack(LSTM, 1, np.float32),
    "lstm of relu": random_stack(LSTM, 1, np.float32, Cell("lstm", activation=RELU, output_activation=RELU)),
    "lstm with peepholes": random_stack(Sizes("lstm", 3, 4, parts=BOTH | {"peephole"}), 1, np.float32),
    "lstm with a projection": random_stack(Sizes("lstm", 3, 4, projection_size=2, parts=BOTH | {"projection"}), 1, np.float32),
    "gru, reset after": random_stack(GRU, 1, np.float32),
    "gru, reset before": random_stack(GRU, 1, np.float32, Cell("gru", False)),
    "rnn": random_stack(RNN, 1, np.float32),
    "rnn of relu": random_stack(RNN, 1, np.float32, Cell("rnn", activation=RELU)),
}
BOTH_WAYS = {kind: random_stack(Sizes(kind, 3, 4, num_directions=2, parts=BOTH), 1, np.float32) for kind in ("lstm", "gru", "rnn")}
WRITTEN = [name for name, card in registry.cards().items() if card.written]


def saved(stack: Recurrent, format: str, folder: Path, layers: Iterable[str] = (), /, **options: Any) -> Path:
    """Write a layer as a file of a format, whose name this format gives it."""
    checkpoint = rc.Checkpoint("(in memory)", "canonical", {"enc": stack.replace(name="enc")})
    path = Path(tempfile.mkdtemp(dir=folder)) / f"a{registry.cards()[format].written[0]}"
    rc.save(checkpoint, path, format, layers=[*layers], **options)
    return path


def test_the_formats_that_a_refusal_names_take_the_layer(tmp_path: Path) -> None:
    proposed: dict[tuple[str, str], str] = {}
    for name, stack in LAYERS.items():
        for format in WRITTEN:
            try:
                saved(stack, format, tmp_path)
            except RefusedError as error:
                listed = re.search(r"Convert to ([a-z0-9_, ]+ or [a-z0-9_]+)", str(error))
                assert listed, f"{name} as {format}: {error}"
                proposed.update({(name, other): format for other in re.split(", | or ", listed[1])})

    def check(pair: tuple[str, str]) -> None:
        saved(LAYERS[pair[0]], pair[1], tmp_path)

    assert {name for name, _ in proposed} == {*LAYERS}
    each(drawn(proposed, 60, "formats proposed"), check, lambda pair: f"{pair[0]}, refused as {proposed[pair]}, as {pair[1]}")


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("kind", BOTH_WAYS)
def test_two_directions_are_split_as_the_refusal_says(kind: str, layers: int, tmp_path: Path) -> None:
    apart: list[str] = []
    tried: list[str] = []
    stack = random_stack(Sizes(kind, 3, 4, num_layers=layers, num_directions=2, parts=BOTH), 1, np.float32)

    def check(format: str) -> None:
        try:
            saved(stack, format, tmp_path)
        except RefusedError as error:
            if "Split them" in error.remedy:
                for words in error.remedy.split("; or "):
                    names = re.findall(r"--layer (\w+)", words)
                    options = dict(re.findall(r"--set (\w+)=(\w+)", words))
                    saved(stack, format, tmp_path, names, **options)
                    apart.extend(names)
                    tried.append(format)

    each(WRITTEN, check)
    assert tried and (layers == 2 or set(apart) == ({"enc_forward", "enc_backward"} if kind != "rnn" else set()))


def test_a_layer_that_splitting_does_not_make_is_named(tmp_path: Path) -> None:
    with pytest.raises(rc.UsageError, match=r"no layer is written as 'up'. There are 'enc_forward', 'enc_backward'"):
        saved(BOTH_WAYS["lstm"], "pytorch", tmp_path, ["up"], directions="split")
    path = saved(BOTH_WAYS["lstm"], "onnx", tmp_path, ["enc_backward"], directions="split")
    (layer,) = rc.load(path).layers.values()
    assert layer.first.reverse


def test_the_name_of_one_formats_files_decides_where_the_ending_is_another_ones(tmp_path: Path) -> None:
    checkpoint = rc.Checkpoint("(in memory)", "canonical", {"enc": LAYERS["lstm"].replace(name="enc")})
    for name, format, expected in (
        ("Model.json", None, "tfjs"),
        ("my_model.json", None, "rtneural"),
        ("model.json", "rtneural", "rtneural"),
    ):
        rc.save(checkpoint, tmp_path / name, format)
        assert rc.load(tmp_path / name).format == expected
        (tmp_path / name).unlink()


@pytest.mark.parametrize("format", ["ncnn", "openvino", "tflite", "coreml", "rtneural", "onnx", "pytorch"])
def test_a_file_that_takes_no_states_is_not_told_to_pass_them(format: str, tmp_path: Path) -> None:
    source = saved(LAYERS["lstm"].replace(name="enc"), "onnx", tmp_path, states="input")
    written = tmp_path / f"a{registry.cards()[format].written[0]}"
    (note, *_) = (text for text in rc.convert(source, written, target_format=format).warnings if "initial state" in text)
    assert note.endswith("Pass it yourself") == (format in ("onnx", "pytorch")) != note.endswith("begins with zeros, and takes no other")


COMMANDS = (
    "convert FILE out.onnx", "convert FILE out.pt", "convert FILE out.keras", "convert FILE out.tflite", "convert FILE out.h",
    "convert FILE out.json --to rtneural", "convert FILE out.param", "export FILE out.onnx", "export FILE out.tflite",
    "export FILE out.h", "export FILE out.param", "export FILE model.json --to tfjs", "scaffold FILE --to pytorch", "inspect FILE",
    "upgrade FILE out.keras", "identify FILE", "convert FILE out.bin --to cudnn", "convert FILE out.npz --to lasagne",
    "convert FILE out.onnx --strict", "convert FILE out.pt --dtype float16", "export FILE out.json --to rtneural",
    "export FILE out.zip --to dl4j", "scaffold FILE --to keras", "fuse FILE out.onnx", "diff FILE FILE", "batch FILE --to keras",
)  # fmt: skip
"""What people type first."""
RUN = 60
"""How many of the files and commands are tried in a run."""


def _files() -> list[Path]:
    """The files that frameworks wrote, and the parts of those that are folders."""
    names = subprocess.run(["git", "ls-files", "tests/golden"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    return [ROOT / name for name in names if Path(name).suffix not in (".py", ".npz", ".md", ".txt", ".xz")]


def _check(case: tuple[Path, str], folder: Path) -> None:
    file, command = case
    first = answered([str(file) if word == "FILE" else word for word in command.split()], folder)
    assert first.code != FAULT, first.error
    if first.code in REFUSALS:
        faults = followed(first, folder)
        assert not faults, "\n".join(faults)


def test_every_way_out_that_an_error_names_leads_further(tmp_path: Path) -> None:
    cases = drawn([(file, command) for file in _files() for command in COMMANDS], RUN, "ways out")

    def check(case: tuple[Path, str]) -> None:
        folder = tmp_path / str(cases.index(case))
        folder.mkdir()
        _check(case, folder)

    each(cases, check, lambda case: f"{case[1]} of {case[0].relative_to(ROOT)}")


def test_ways_out_that_lead_nowhere_are_found(tmp_path: Path) -> None:
    refused = answered(["convert", tmp_path / "absent.pt", "out.onnx"], tmp_path)
    faults = followed(replace(refused, remedies=(Flag("force"), Setting("directions", "split"))), tmp_path)
    assert len(faults) == 2 and all("is answered by the same error" in fault for fault in faults)
    path = tmp_path / "more.npz"
    matrices = {"weight_ih_l0": (16, 3), "weight_hh_l0": (16, 4), "bias_ih_l0": (16,), "bias_hh_l0": (16,), "forgotten": (50, 50)}
    arrays: dict[str, Any] = {name: np.ones(shape, np.float32) for name, shape in matrices.items()}
    np.savez(path, **arrays)
    (tmp_path / "silent").mkdir()
    words = ["convert", str(path), "out.safetensors", "--from", "pytorch"]
    assert answered(words, tmp_path / "silent").code == 0
    assert _left_out_silently(words, tmp_path / "silent", "") and not _left_out_silently(words, tmp_path / "silent", "left out: forgotten")
