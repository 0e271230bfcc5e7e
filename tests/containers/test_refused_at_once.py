"""Files that would hold a command for ever, or end it as a fault of its own: refused, with the documented exit code."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.formats.jax.scaffold.writer import NnxModule
from rnnconvert.formats.pytorch.scaffold.writer import TorchModule
from rnnconvert.language import registry
from rnnconvert.running.inputs import read_inputs
from tests.helpers import sources
from tests.helpers.commands import call
from tests.helpers.drawn import each
from tests.helpers.requirements import needed


def test_zeros_are_refused_by_their_first_bytes(tmp_path: Path) -> None:
    """However many they are: 3 GB that take no place on the disk."""
    path = tmp_path / "zeros.onnx"
    path.touch()
    os.truncate(path, 3 << 30)
    uses: dict[str, Callable[[], object]] = {
        "inspect": lambda: rc.inspect(path),
        "load": lambda: rc.load(path),
        "scaffold": lambda: rc.scaffold(path, "pytorch"),
        "fuse": lambda: rc.fuse(path, tmp_path / "fused.onnx"),
    }

    def check(name: str) -> None:
        start = time.process_time()
        with pytest.raises(rc.UnreadableError):
            uses[name]()
        assert time.process_time() - start < 10

    each(uses, check, str)


def test_a_pipe_of_inputs_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.npz")
    code = "import sys; from rnnconvert.running.inputs import read_inputs; read_inputs(sys.argv[1])"
    run = subprocess.run([sys.executable, "-c", code, str(tmp_path / "x.npz")], capture_output=True, text=True, timeout=60)
    assert f"{tmp_path / 'x.npz'}: it is not a regular file." in run.stderr and "damaged" not in run.stderr
    np.save(tmp_path / "x.npy", np.ones(3))
    assert len(read_inputs(tmp_path / "x.npy")) == 1


def test_a_name_that_is_not_utf8_is_a_name(tmp_path: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    folder.mkdir()
    source = sources.write(folder / "a\udcff.safetensors", sources.stack())
    target = folder / "t\udcff.safetensors"
    done = call("convert", str(source), str(target), "--to", "pytorch")
    assert done.exit_code == 0, done.output
    assert target.exists()


def test_a_closed_stdout_is_an_output_that_cannot_be_written(tmp_path: Path) -> None:
    source = sources.write(tmp_path / "a.safetensors", sources.stack())

    def check(words: str) -> None:
        command = f"exec {sys.executable} -m rnnconvert {words} >&-"
        run = subprocess.run(["sh", "-c", command], stderr=subprocess.PIPE, text=True, timeout=60)
        assert (run.returncode, "stdout is closed" in run.stderr) == (74, True), run

    each([f"inspect {source}", f"inspect {source} --json", f"convert {source} - --to keras"], check, str)


def test_a_configuration_that_is_no_json_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.h5"
    with h5py.File(path, "w") as file:
        file.attrs["keras_version"] = "2.4.0"
        layer = file.create_group("model_weights/lstm/lstm")
        for name, shape in (("kernel:0", (3, 8)), ("recurrent_kernel:0", (2, 8)), ("bias:0", (8,))):
            layer.create_dataset(name, data=np.zeros(shape, np.float32))
    uses: dict[str, Callable[[], object]] = {
        "scaffold": lambda: rc.scaffold(path, "pytorch"),
        "upgrade": lambda: rc.upgrade(path, tmp_path / "u.keras"),
        "export": lambda: rc.export_model(path, tmp_path / "u.onnx"),
    }

    def check(case: tuple[str, str]) -> None:
        text, name = case
        with h5py.File(path, "r+") as file:
            file.attrs["model_config"] = text
        with pytest.raises(rc.RnnConvertError) as raised:
            uses[name]()
        assert raised.value.exit_code in (2, 3, 4)

    each([(text, name) for text in ("", " ", "{", "null", "[]") for name in uses], check, str)


def test_a_link_to_itself_is_refused(tmp_path: Path) -> None:
    def check(case: tuple[str, str]) -> None:
        command, ending = case
        path = tmp_path / f"{command}.{ending}"
        path.symlink_to(path)
        done = call(command, str(path), *([str(tmp_path / f"out.{ending}")] if command in ("fuse", "upgrade", "export") else []))
        assert done.exit_code in (2, 3), done.output

    each([("fuse", "onnx"), ("upgrade", "keras"), ("inspect", "onnx"), ("export", "onnx"), ("scaffold", "keras")], check, str)


def test_no_layer_is_called_like_what_a_module_has() -> None:
    torch, nnx = needed("torch", "torch"), needed("flax", "flax.nnx")
    for writer, base in ((TorchModule, torch.nn.Module()), (NnxModule, nnx.Module)):
        public = {name for name in dir(base) if not name.startswith("_") and name.islower()}
        assert public <= writer.ATTRIBUTES, public - writer.ATTRIBUTES


@pytest.mark.filterwarnings("ignore:::")
def test_a_layer_may_be_called_like_anything_that_a_class_has(tmp_path: Path) -> None:
    """One model with a layer for each name of torch's, Keras's and nnx's classes, those with underscores among them, in every target."""
    torch, nnx, keras = needed("torch", "torch"), needed("flax", "flax.nnx"), needed("keras", "keras")
    bases = {"pytorch": torch.nn.Module(), "flax": nnx.Module(), "keras": keras.Model()}
    assert {target.NAME for target in registry.named("scaffold_to").values()} == {*bases}
    names = sorted({name for base in bases.values() for name in dir(base)})
    x = start = keras.Input((None, 2))
    for name in names:
        x = keras.layers.Dense(2, name=name)(x)
    keras.Model(start, x).save(tmp_path / "m.keras")
    for target, base in bases.items():
        text = rc.scaffold(tmp_path / "m.keras", target).text
        stored = {node.attr for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}
        assert not stored & {*dir(base)}, target
        assert len(stored) >= len(names) or target == "keras", "a layer of each name is an attribute"
        if target == "pytorch":
            module: dict[str, Any] = {"__name__": "written"}
            exec(compile(text, "written.py", "exec"), module)
            assert module["Model"]()(torch.zeros(1, 3, 2)).shape == (1, 3, 2)
