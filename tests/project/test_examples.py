"""Every example of examples/ runs as its reader would run it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core import reference
from rnnconvert.running.child import missing
from tests import ROOT
from tests.helpers.requirements import need

EXAMPLES = ROOT / "examples"


def run(script: str, *words: object, **variables: str) -> str:
    """What a script prints; it must end well."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3", **variables}
    command = [sys.executable, "-W", "ignore", str(EXAMPLES / script), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_keras_to_pytorch(tmp_path: Path) -> None:
    need("torch", missing(["torch"]))
    need("keras", missing(["keras", "tensorflow"]))
    output = run("keras_to_pytorch.py", tmp_path / "scores.pt")
    assert "encoder from encoder" in output and "\nequal\n" in output and (tmp_path / "scores.pt").exists()


def test_pytorch_to_onnx_to_c(tmp_path: Path) -> None:
    need("torch", missing(["torch"]))
    if not (os.environ.get("CC") or shutil.which("cc")):
        pytest.skip("no C compiler")
    output = run("pytorch_to_onnx_to_c/convert.py", tmp_path)
    assert "largest difference between the C program and PyTorch" in output
    assert {"tagger.onnx", "encoder.bin", "encoder.bin.json", "offsets.h"} <= {path.name for path in tmp_path.iterdir()}


def test_without_a_compiler_the_buffer_is_written_and_that_is_said(tmp_path: Path) -> None:
    need("torch", missing(["torch"]))
    (tmp_path / "empty").mkdir()
    output = run("pytorch_to_onnx_to_c/convert.py", tmp_path, PATH=str(tmp_path / "empty"), CC="")
    assert "no C compiler" in output and (tmp_path / "encoder.bin").stat().st_size == 768 * 4


def test_another_offset_is_caught(tmp_path: Path) -> None:
    """The comparison with PyTorch sees two gates in each other's place."""
    need("torch", missing(["torch"]))
    if not (os.environ.get("CC") or shutil.which("cc")):
        pytest.skip("no C compiler")
    folder = tmp_path / "example"
    shutil.copytree(EXAMPLES / "pytorch_to_onnx_to_c", folder)
    source = folder / "encoder.c"
    source.write_text(source.read_text().replace("enum { R, Z, N }", "enum { Z, R, N }"))
    with pytest.raises(AssertionError, match="not equal"):
        run(str(folder / "convert.py"), tmp_path)


HEADERS = Path(os.environ.get("ONNXRUNTIME_INCLUDE") or "/usr/include/onnxruntime")


@pytest.fixture
def streaming(tmp_path: Path) -> list[str]:
    """The C program that streams, compiled and linked with the library of the installed onnxruntime, and its model."""
    need("onnxruntime", missing(["onnxruntime"]))
    header = HEADERS / "onnxruntime_c_api.h"
    need("onnxruntime_c", "" if header.exists() else f"no {header} (Debian's libonnxruntime-dev, or ONNXRUNTIME_INCLUDE)")
    import onnxruntime

    (library,) = Path(onnxruntime.__file__).parent.glob("capi/libonnxruntime.so.*")
    (tmp_path / "libonnxruntime.so.1").symlink_to(library)
    warnings = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic"]
    where = [f"-I{HEADERS}", f"-Wl,-rpath,{tmp_path}"]
    program = str(tmp_path / "streaming")
    source = str(EXAMPLES / "streaming.c")
    subprocess.run(["cc", *warnings, *where, source, str(tmp_path / "libonnxruntime.so.1"), "-o", program], check=True)
    model = str(tmp_path / "stream.onnx")
    rc.convert(EXAMPLES / "encoder.keras", model, layers=["summary"], states="stream")
    return [program, model]


def test_the_c_program_streams(streaming: list[str], tmp_path: Path) -> None:
    (stack,) = rc.load(streaming[1]).layers.values()
    inputs, hidden = stack.input_size, stack.hidden_size
    frames = np.random.default_rng(0).normal(size=(20, inputs)).astype("<f4")
    command = [*streaming, str(inputs), str(hidden)]
    done = subprocess.run(command, input=frames.tobytes(), capture_output=True)
    assert done.returncode == 0, done.stderr
    outputs = np.frombuffer(done.stdout, "<f4").reshape(20, hidden)
    assert np.abs(outputs - reference.run(stack, frames[:, None].astype(float)).y[:, 0]).max() < 1e-6


def test_the_page_shows_lines_of_the_c_program() -> None:
    page, program = (ROOT / "docs" / "streaming.md").read_text(), (EXAMPLES / "streaming.c").read_text()
    code = [line for line in page.partition("## In C\n")[2].partition("## In J")[0].splitlines() if line.startswith("    ")]
    assert len(code) > 5 and "\n".join(code) in program


def test_the_c_program_says_what_is_wrong(streaming: list[str], tmp_path: Path) -> None:
    for words in ([*streaming, "3", "4"], [streaming[0], str(tmp_path / "none.onnx"), "3", "4"]):
        done = subprocess.run(words, input=bytes(12), capture_output=True)
        assert done.returncode == 1 and done.stderr and not done.stdout


def test_keras_2_rescue(tmp_path: Path) -> None:
    output = run("keras_2_rescue.py", tmp_path)
    assert "cu_dnngru_1: GRU (reset after)" in output and "refused: layer 'lstm_1'" in output
    need("onnxruntime", missing(["onnxruntime"]))
    assert "largest difference from Keras 2's own equations" in output


@pytest.mark.parametrize("path", sorted(EXAMPLES.rglob("*.py")), ids=lambda path: str(path.relative_to(EXAMPLES)))
def test_an_example_says_what_it_shows_and_how_to_run_it(path: Path) -> None:
    text = path.read_text()
    assert text.startswith('"""')
    if path.parent.name != "tests":
        assert f"python examples/{path.relative_to(EXAMPLES).as_posix()}" in text
