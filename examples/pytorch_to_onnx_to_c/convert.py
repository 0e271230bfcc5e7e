"""A PyTorch model to ONNX, and from there its recurrent layer to C: the flat buffer of weights that cuDNN takes.

Makes a small tagger, exports it with torch.onnx, takes the GRU out of the ONNX file as cuDNN's buffer, writes the
offsets of its gates as a C header, compiles encoder.c, which computes the layer on the CPU without cuDNN, and compares
its outputs with PyTorch's. With HAVE_CUDNN encoder.c hands the buffer to cudnnRNNForward; that is not compiled here.

    python examples/pytorch_to_onnx_to_c/convert.py [folder]

Needs: rnnconvert, torch, and a C compiler (`cc`, or the environment's CC) for the last step.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import torch
from click.testing import CliRunner

import rnnconvert as rc
from rnnconvert.cli.main import main as command_line

SOURCE = Path(__file__).parent / "encoder.c"
INPUTS, HIDDEN, STEPS = 6, 8, 20


class Tagger(torch.nn.Module):
    """A tag for every step, of a GRU in both directions."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = torch.nn.GRU(INPUTS, HIDDEN, bidirectional=True)
        self.tags = torch.nn.Linear(2 * HIDDEN, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the tags, (time, batch, 3), of x, (time, batch, 6)."""
        return self.tags(self.encoder(x)[0])


def export(module: torch.nn.Module, path: Path) -> None:
    """Write the module as an ONNX file."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter announces its successor
        torch.onnx.export(module, (torch.zeros(STEPS, 1, INPUTS),), str(path), input_names=["x"], dynamo=False)


def header() -> str:
    """Return the sizes, and where each gate of each matrix starts, in C."""
    words = f"layout cudnn --cell gru --input-size {INPUTS} --hidden-size {HIDDEN} --bidirectional --json"
    result = CliRunner().invoke(command_line, words.split(), catch_exceptions=False)
    table = json.loads(result.stdout)
    lines = [f"enum {{ INPUTS = {INPUTS}, HIDDEN = {HIDDEN}, WEIGHTS = {table['arrays']['params'][0]} }};"]
    for part in ("input", "recurrent", "input_bias", "recurrent_bias"):
        starts = {(row["direction"], row["gate"]): row["offset"] for row in table["offsets"] if row["part"] == part}
        rows = ", ".join("{" + ", ".join(str(starts[way, gate]) for gate in "rzn") + "}" for way in (0, 1))
        lines.append(f"static const long {part}[2][3] = {{{rows}}}; /* direction, gate r z n */")
    return "\n".join(lines) + "\n"


def main(folder: Path) -> None:
    """Take every step, from the module to the numbers that the C program gives."""
    torch.manual_seed(3)
    module = Tagger()
    export(module, folder / "tagger.onnx")
    checkpoint = rc.load(folder / "tagger.onnx")
    name, layer = next(iter(checkpoint.layers.items()))
    print(f"{name}: {layer.describe()}")
    rc.save(checkpoint, folder / "encoder.bin", layers=[name], force=True)
    (folder / "offsets.h").write_text(header(), encoding="utf-8")

    compiler = os.environ.get("CC") or shutil.which("cc")
    if compiler is None:
        print("no C compiler: the buffer and its header are written, and nothing was run")
        return
    program = folder / "encoder"
    subprocess.run([compiler, "-O2", "-Wall", f"-I{folder}", str(SOURCE), "-o", str(program), "-lm"], check=True)
    x = np.random.default_rng(4).normal(size=(STEPS, INPUTS)).astype("<f4")
    x.tofile(folder / "x.bin")
    subprocess.run([program, folder / "encoder.bin", folder / "x.bin", str(STEPS), folder / "y.bin"], check=True)
    outputs = np.fromfile(folder / "y.bin", "<f4").reshape(STEPS, 2 * HIDDEN)
    with torch.no_grad():
        expected = module.encoder(torch.from_numpy(x)[:, None])[0][:, 0].numpy()
    difference = np.abs(outputs - expected).max()
    print(f"largest difference between the C program and PyTorch: {difference:.2g}")
    if difference > 1e-5:
        sys.exit("the two are not equal")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
