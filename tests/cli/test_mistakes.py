"""Typical mistakes: each message says what is wrong, and what to type instead; the exit code is that of its kind."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from rnnconvert.cli.main import main
from tests import ROOT

A, B = "examples/encoder.keras", "examples/decoder.keras"

MISTAKES = {
    # what is typed: the exit code, what is wrong, what helps
    f"inspct {A}": (2, "No such command 'inspct'", "Did you mean 'inspect'?"),
    A: (2, f"No such command '{A}'", f"rnnconvert inspect {A}"),
    f"convert {A}": (2, "TARGET is missing", "give SOURCE and TARGET"),
    f"convert {A[:-1]} out.onnx": (3, "No such file", f"Did you mean {A}?"),
    f"convert {A} out.onx": (2, "cannot infer the format from the file name", "Did you mean '.onnx'?"),
    f"convert {A} out": (2, "cannot infer the format from the file name", "`rnnconvert formats`"),
    f"convert {A} out.onnx --too onnx": (2, "No such option '--too'", "'--to'"),
    f"convert {A} out.pt --to pytroch": (2, "Unknown format 'pytroch'", "Did you mean 'pytorch'?"),
    f"convert {A} out.onnx --layer encodr": (2, "no recurrent layer 'encodr'", "It has 'encoder', 'summary'"),
    f"convert {A} {B}": (2, "already exists", "Use --force"),
    f"convert {A} out.onnx --set cell_clip=3": (2, "--set cell_clip=3 decides nothing", "Leave it out"),
    f"convert {A} out.onnx --set activaton=relu": (2, "Unknown option 'activaton'", "Did you mean 'activation'?"),
    f"convert {A} out.onnx --set activation": (2, "expected KEY=VALUE", "--set nonlinearity=relu"),
    f"convert {A} out.onnx --dtype float17": (2, "'float17' is not one of", "'float16'"),
    f"convert {B} out.pt": (4, "the reset gate before the product", "rnnconvert scaffold"),
    f"convert {A} absent/out.onnx": (2, "its folder does not exist", "Create it"),
    "convert examples out.onnx": (3, "but holds decoder.keras, ", "Give the path of one of them; `rnnconvert batch` converts"),
    "convert nothing out.onnx": (3, "nothing: the folder is empty", ""),
    "inspect examples/ci": (3, "a folder of another kind", "`rnnconvert formats`"),
    f"convert {A} nothing": (2, "nothing is a folder", "Name a file in it"),
    "inspect raw.bin": (3, "of no known format", "it would be cudnn: `rnnconvert inspect raw.bin --from cudnn` reads it as that."),
    "inspect checkpoint": (3, "TensorFlow's list of the checkpoints next to it", "give the path"),
    f"verify {A} --on my-runtime": (2, "Unknown executor 'my-runtime'", "`rnnconvert executors`"),
    f"verify {A} {B}": (2, "cannot tell what corresponds to 'encoder'", "--pair encoder=decoder"),
    f"diff {A} absent.onnx": (3, "absent.onnx: No such file", ""),
    f"diff {A}": (2, "Missing argument 'B'", "rnnconvert diff --help"),
    "inspect pointer.onnx": (3, "a Git LFS pointer", "git lfs pull"),
    "inspect page.pt": (3, "it is a web page", "Download the file itself"),
    "inspect empty.h5": (3, "the file is empty", "Save or fetch it again"),
    "inspect cut.keras": (3, "cut off or damaged", "fetch it again"),
    "inspect unlabelled.npz": (3, "without arrays named as those of a recurrent layer", "rnnconvert identify unlabelled.npz"),
    "inspect net.mat": (3, "a file of MATLAB's", "Export the network there"),
    "inspect final.mdl": (3, "a model of Kaldi's", "nnet3-am-copy writes it as text"),
    "inspect parser.model": (3, "has 2 numbers, not those of [40, 10]", "cut off"),
    "inspect script.clstm": (3, "a network of CLSTM's", "Save its arrays apart"),
    "inspect fdeep.json": (3, "that frugally-deep made", "convert that model"),
    "inspect trained.jsn": (3, "a network of CURRENNT's", "--layout"),
    "inspect graph.pb": (3, "the graph of a SavedModel", "give the folder that has both"),
    "layout mxnet --cell lstm --variant flat": (2, "no layout 'flat' for lstm", "mxnet.lstm_flat"),
    "inspect text.txt": (3, "text of no known format", "`rnnconvert formats`"),
    "convert cnn.npz out.onnx": (3, "without a known model", "rnnconvert identify"),
    "view": (2, "Missing argument 'FILE'", "rnnconvert view --help"),
    "check --config absent.toml": (3, "absent.toml: No such file", ""),
    "identify unlabelled.npz --io absent.npz": (3, "absent.npz: No such file", ""),
    "layout keras --cell lstmm": (2, "'lstmm' is not one of", "'lstm'"),
    "report text.txt": (3, "it is not JSON", "rnnconvert verify --report FILE.json"),
    f"batch {A} --out folder": (2, "--to is missing", "--to onnx"),
    f"upgrade {A} new.keras": (2, "which reads it itself", "keras.saving.load_model"),
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    (tmp_path / "pointer.onnx").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 3\n")
    (tmp_path / "page.pt").write_text("<!DOCTYPE html><html><body>Not found</body></html>\n")
    (tmp_path / "empty.h5").write_bytes(b"")
    (tmp_path / "cut.keras").write_bytes((ROOT / A).read_bytes()[:5000])
    (tmp_path / "net.mat").write_bytes(
        b"MATLAB 5.0 MAT-file, Platform: PCWIN64, Created on: Sun Nov 22 20:44:23 2020".ljust(128) + bytes(64)
    )
    (tmp_path / "graph.pb").write_bytes(b"\x08\x01\x12\xe8\x9e\xed\x01\n" + bytes(40))
    (tmp_path / "final.mdl").write_bytes(b"\0B<TransitionModel> <Topology> " + bytes(40))
    (tmp_path / "parser.model").write_text("#Parameter# /vanilla-lstm-builder/_0 {40,10} 3200 FULL_GRAD\n0.5 0.5\n")
    (tmp_path / "script.clstm").write_bytes(b"\n\x07Stacked" + bytes(40))
    (tmp_path / "fdeep.json").write_text('{"architecture": {}, "image_data_format": "channels_last", "trainable_params": {}}')
    (tmp_path / "trained.jsn").write_text('{"layers": [{"name": "a", "type": "blstm", "size": 10}], "weights": {"a": {"input": [0.5]}}}')
    (tmp_path / "text.txt").write_text("hello\n")
    (tmp_path / "nothing").mkdir()
    (tmp_path / "raw.bin").write_bytes(bytes(range(3, 255)))
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "m.ckpt-20"\nall_model_checkpoint_paths: "m.ckpt-20"\n')
    np.savez(tmp_path / "unlabelled.npz", a=np.zeros((12, 3), np.float32), b=np.zeros((12, 4), np.float32))
    np.savez(tmp_path / "cnn.npz", kernel=np.zeros((3, 3, 2), np.float32))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_each_mistake_is_named_with_what_helps(folder: Path) -> None:
    assert len(MISTAKES) > 30
    before = sorted(path for path in folder.rglob("*"))
    wrong = []
    for words, (code, what, remedy) in MISTAKES.items():
        done = CliRunner().invoke(main, words.split())
        text = " ".join(done.output.split())
        if done.exit_code != code or what not in text or remedy not in text or "Traceback" in text or done.stdout:
            wrong.append(f"{words}: {done.exit_code}, {done.output}")
    assert not wrong, "\n\n".join(wrong)
    assert sorted(path for path in folder.rglob("*")) == before
