"""Small files of every kind, made when the fuzzer starts: by the project's own writers, by other libraries where they are
installed, from tests/golden, and from a folder of real files where there is one.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import pickle
import shutil
import subprocess
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import rnnconvert as rc
from fuzz import whole
from rnnconvert.core.errors import RnnConvertError
from rnnconvert.language import registry
from rnnconvert.language.layout import Sizes
from tests.helpers.corpus import FOLDER
from tests.helpers.stacks import PLAIN, random_stack

LARGEST = 48 << 10
"""The most bytes of a seed, all its files together: an execution has to be cheap."""
GOLDEN = Path(__file__).parents[1] / "tests" / "golden"


@dataclass(frozen=True)
class Seed:
    """One checkpoint.

    kind     what it is fuzzed as
    entry    the name that it is read by
    files    every file of it, by its path inside a folder
    format   the format that it was written as; None where its content decides
    """

    kind: str
    entry: str
    files: dict[str, bytes]
    format: str | None = None


def build(folder: Path, corpus: bool = True, kinds: Sequence[str] = ()) -> list[Seed]:
    """Make the seeds of some kinds, or all, in an empty folder.

    corpus  and take those of the folder of real files, if there is one
    """
    every_seed: list[Seed] = []
    for number, make in enumerate((_written, _others, _golden, _whole_models, *([_real] if corpus else []))):
        inside = folder / str(number)
        inside.mkdir()
        every_seed += make(inside, kinds)
    return [seed for seed in every_seed if (not kinds or seed.kind in kinds) and 0 < sum(map(len, seed.files.values())) <= LARGEST]


def _seed(kind: str, path: Path, format: str | None = None) -> Seed:
    """Return the seed of a path and of everything that lies in its folder."""
    root = path.parent
    files = {str(file.relative_to(root)): file.read_bytes() for file in sorted(root.rglob("*")) if file.is_file()}
    return Seed(kind, path.name, files, format)


def kind_of(name: str) -> str:
    """Return what a file of that name is fuzzed as."""
    for end in (".weights.h5", ".safetensors.index.json"):
        if name.endswith(end):
            return end[1:]
    return {"hdf5": "h5", "pth": "pt", "ckpt": "pt", "th": "pt", "bin": "bin", "cudnn": "bin", "index": "tensorflow"}.get(
        name.rpartition(".")[2].lower(), name.rpartition(".")[2].lower())  # fmt: skip


def _written(folder: Path, kinds: Sequence[str]) -> Iterator[Seed]:
    """Yield what the project writes: each format, each ending, an LSTM and a GRU where it takes them."""
    for card in registry.cards().values():
        for end in card.written:
            if kinds and kind_of(f"m{end}") not in kinds:
                continue
            for cell in ("lstm", "gru"):
                for parts in ({"input_bias"}, {"input_bias", "recurrent_bias"}, set[str]()):
                    inside = folder / f"{card.name}{end}.{cell}{len(parts)}"
                    inside.mkdir()
                    stack = random_stack(Sizes(cell, 2, 3, parts=PLAIN | parts), 1, np.float32)
                    try:
                        rc.save(rc.Checkpoint("memory", "memory", {"rnn": stack.replace(name="rnn")}), inside / f"m{end}", card.name)
                    except (RnnConvertError, TypeError):
                        shutil.rmtree(inside)
                        continue
                    (path,) = inside.glob(f"m{end}") if (inside / f"m{end}").exists() else sorted(inside.iterdir())[:1]
                    yield _seed(kind_of(path.name), path, card.name)
                    break
    big = random_stack(Sizes("lstm", 16, 16, parts=PLAIN | {"input_bias"}), 1, np.float32)
    inside = folder / "external"
    inside.mkdir()
    rc.save(rc.Checkpoint("memory", "memory", {"rnn": big}), inside / "m.onnx", settings=["external_data=true"])
    yield _seed("onnx", inside / "m.onnx")


def _others(folder: Path, kinds: Sequence[str]) -> Iterator[Seed]:
    """Yield what the project only reads, written by other libraries or by the tests' writers."""
    asked = [name for name in _MAKERS if not kinds or name in kinds]
    # In a process of its own: what these import would make every later one larger.
    words = [sys.executable, "-W", "ignore", "-m", "fuzz.seeds", str(folder), *asked]
    done = subprocess.run(words, cwd=Path(__file__).parents[1], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"the seeds of other libraries were not made: {done.stderr}")
    for name, paths in json.loads(done.stdout).items():
        for path in paths:
            yield _seed(name, folder / name / path)


def _make(folder: Path, names: Sequence[str]) -> dict[str, list[str]]:
    """Make the seeds of some makers; return the paths of each, inside its folder. A library that is not installed makes none."""
    paths: dict[str, list[str]] = {}
    for name in names:
        inside = folder / name
        inside.mkdir()
        with contextlib.suppress(ImportError):
            paths[name] = [str(path.relative_to(inside)) for path in _MAKERS[name](inside)]
    return paths


def _torch(folder: Path) -> Iterator[Path]:
    import torch

    module = torch.nn.LSTM(2, 3)
    (folder / "old").mkdir()
    torch.save(module.state_dict(), folder / "old" / "m.pt", _use_new_zipfile_serialization=False)
    yield folder / "old" / "m.pt"
    (folder / "module").mkdir()
    torch.save(module, folder / "module" / "m.pt")
    yield folder / "module" / "m.pt"
    (folder / "script").mkdir()
    torch.jit.script(module).save(str(folder / "script" / "m.pt"))
    yield folder / "script" / "m.pt"


def _shards(folder: Path) -> Iterator[Path]:
    from rnnconvert.containers import safetensors

    arrays = {f"rnn.{name}_l0": np.ones(shape, np.float32) for name, shape in
              (("weight_ih", (12, 2)), ("weight_hh", (12, 3)), ("bias_ih", (12,)), ("bias_hh", (12,)))}  # fmt: skip
    names = list(arrays)
    for number, part in enumerate((names[:2], names[2:])):
        safetensors.write(folder / f"part-{number}.safetensors", {name: arrays[name] for name in part})
    places = {name: f"part-{index // 2}.safetensors" for index, name in enumerate(names)}
    path = folder / "model.safetensors.index.json"
    path.write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": places}))
    yield path


def _jld2(folder: Path) -> Iterator[Path]:
    from tests.helpers import julia_files

    tree = {"weight_i": np.ones((12, 2), np.float32), "weight_h": np.ones((12, 3), np.float32), "bias": np.ones(12, np.float32)}
    yield julia_files.jld2(folder / "m.jld2", model_state={"rnn": tree})


def _dl4j(folder: Path) -> Iterator[Path]:
    from tests.formats.dl4j import test_dl4j_files as dl4j

    config = dl4j.network(dl4j.new("LSTM", 2, 3))
    yield dl4j.model(folder / "m.zip", config, np.ones(3 * 4 * (2 + 3 + 1), np.float32))


def _onnxtxt(folder: Path) -> Iterator[Path]:
    import onnx
    from google.protobuf import text_format

    stack = random_stack(Sizes("gru", 2, 3, parts=PLAIN | {"input_bias"}), 1, np.float32)
    rc.save(rc.Checkpoint("memory", "memory", {"rnn": stack}), folder / "m.onnx")
    text = text_format.MessageToString(onnx.load(folder / "m.onnx"))
    (folder / "m.onnx").unlink()
    (folder / "m.onnxtxt").write_text(text)
    yield folder / "m.onnxtxt"


def _folded(folder: Path) -> Iterator[Path]:
    """Yield a GRU whose weights lie behind constant nodes, one of each operator that is folded."""
    import onnx
    from onnx import helper, numpy_helper

    def constant(name: str, array: Any) -> Any:
        return numpy_helper.from_array(np.asarray(array), name)

    constants = [constant("w", np.ones((9, 2), np.float32)), constant("r", np.ones((1, 9, 3), np.float32)), constant("axes", np.array([0])),
             constant("b", np.ones((1, 9), np.float32)), constant("starts", np.array([0])), constant("ends", np.array([3])),
             constant("one", np.array([1])),
             constant("shape", np.array([1, 9, 3])), constant("idx", np.array([0, 1, 2])),
             constant("scale", np.float32(0.5)),
             constant("big", np.array([1, 9])), constant("q", np.ones((9, 3), np.int8)), constant("pads", np.array([0,
                 0, 0, 0]))]  # fmt: skip
    nodes = [
        helper.make_node("Split", ["w"], ["wr", "wz", "wn"], axis=0), helper.make_node("Concat", ["wr", "wz", "wn"], ["wc"], axis=0),
        helper.make_node("Slice", ["wc", "starts", "ends", "axes", "one"], ["ws"]),
        helper.make_node("Gather", ["wc", "idx"], ["wg"], axis=0),
        helper.make_node("Concat", ["ws", "wg", "ws"], ["wd"], axis=0), helper.make_node("Transpose", ["wd"], ["wt"], perm=[1, 0]),
        helper.make_node("Transpose", ["wt"], ["wu"], perm=[1, 0]), helper.make_node("Unsqueeze", ["wu", "axes"], ["W"]),
        helper.make_node("DequantizeLinear", ["q", "scale"], ["rf"]), helper.make_node("Reshape", ["rf", "shape"], ["R"]),
        helper.make_node("Expand", ["b", "big"], ["be"]), helper.make_node("Mul", ["be", "scale"], ["bm"]),
        helper.make_node("Pad", ["bm", "pads"], ["bp"]), helper.make_node("ConstantOfShape", ["big"], ["zero"]),
        helper.make_node("Concat", ["bp", "zero"], ["B"], axis=1),
        helper.make_node("GRU", ["X", "W", "R", "B"], ["Y", "Yh"], hidden_size=3, linear_before_reset=1),
    ]  # fmt: skip
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("X", 1, [None, None, 2])],
                              [helper.make_tensor_value_info("Y", 1, None)], constants)  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), folder / "m.onnx")
    yield folder / "m.onnx"


def _gzipped(folder: Path) -> Iterator[Path]:
    stack = random_stack(Sizes("gru", 2, 3, parts=PLAIN | {"input_bias"}), 1, np.float32)
    rc.save(rc.Checkpoint("memory", "memory", {"rnn": stack}), folder / "m.onnx")
    (folder / "m.onnx.gz").write_bytes(gzip.compress((folder / "m.onnx").read_bytes()))
    (folder / "m.onnx").unlink()
    yield folder / "m.onnx.gz"


def _dense_hdf5(folder: Path) -> Iterator[Path]:
    """Yield HDF5 of the newest layout, with chunks, filters, many attributes and links: other code of the library."""
    import h5py

    (folder / "new").mkdir()
    with h5py.File(folder / "new" / "m.h5", "w", libver="latest", track_order=True) as file:
        group = file.create_group("model_weights/lstm/lstm")
        for number in range(12):
            group.attrs[f"text{number}"] = f"some text {number}"
        group.attrs["names"] = np.array(["a", "b"], h5py.string_dtype())
        for name, shape in (("kernel:0", (2, 12)), ("recurrent_kernel:0", (3, 12)), ("bias:0", (12,))):
            group.create_dataset(name, data=np.ones(shape, np.float32), chunks=shape, compression="gzip", shuffle=True, fletcher32=True)
    yield folder / "new" / "m.h5"
    (folder / "old").mkdir()
    with h5py.File(folder / "old" / "m.h5", "w", libver="earliest") as file:
        file.attrs["keras_version"] = "2.2.4"
        file.attrs["layer_names"] = [b"lstm_1"]
        group = file.create_group("lstm_1")
        group.attrs["weight_names"] = [b"lstm_1/kernel:0", b"lstm_1/recurrent_kernel:0", b"lstm_1/bias:0"]
        group.attrs["words"] = np.array(["one", "two"] * 60, h5py.string_dtype())
        for name, shape in (("kernel:0", (2, 12)), ("recurrent_kernel:0", (3, 12)), ("bias:0", (12,))):
            group.create_dataset(f"lstm_1/{name}", data=np.ones(shape, np.float32))
    yield folder / "old" / "m.h5"


def _only_read(folder: Path) -> Iterator[Path]:
    """Yield files of formats that are only read, or whose kind is not written."""
    from tests.formats.burn import test_burn_files as burn
    from tests.formats.ggml import test_ggml_files as ggml
    from tests.formats.tesseract import test_tesseract_files as tesseract

    arrays = {f"rnn.{gate}_gate.{side}_transform.{name}": np.ones(shape, np.float32) for gate in ("input", "forget", "output", "cell")
              for side, rows in (("input", 2), ("hidden", 3)) for name, shape in (("weight", (rows, 3)), ("bias", (3,)))}  # fmt: skip
    yield burn.mpk(folder / "m.mpk", arrays)
    yield burn.burnpack(folder / "m.bpk", arrays)
    for integers in (False, True):
        content = tesseract.network(tesseract.numbers_of(3, 4), integers)
        yield tesseract.trained(folder / f"m{integers}.traineddata", content)
        (folder / f"m{integers}.lstm").write_bytes(content)
        yield folder / f"m{integers}.lstm"
    yield ggml.written(folder / "ggml.bin", ggml.cell())


def _arrays() -> dict[str, Any]:
    """Return an LSTM under the names that PyTorch gives its arrays."""
    shapes = {"weight_ih": (12, 2), "weight_hh": (12, 3), "bias_ih": (12,), "bias_hh": (12,)}
    return {f"rnn.{name}_l0": np.ones(shape, np.float32) for name, shape in shapes.items()}


def _inside(folder: Path) -> Iterator[Path]:
    """Yield models in containers: in a zip archive, in a tar inside a zip archive, as bytes in a pickle."""
    from rnnconvert.containers import safetensors

    safetensors.write(folder / "model.safetensors", _arrays())
    model = (folder / "model.safetensors").read_bytes()
    with tarfile.open(folder / "model.tar.gz", "w:gz") as tar:
        tar.add(folder / "model.safetensors", "model/weights.safetensors")
    for name, inner in (("flat.zip", "model.safetensors"), ("nested.zip", "model.tar.gz")):
        with zipfile.ZipFile(folder / name, "w", zipfile.ZIP_DEFLATED) as outer:
            outer.write(folder / inner, inner)
            outer.writestr("README.md", "a model")
        yield folder / name
    yield folder / "model.tar.gz"
    for protocol in (2, 4):
        path = folder / f"held{protocol}.pkl"
        path.write_bytes(pickle.dumps({"model": model, "epoch": 3}, protocol))
        yield path


def _joblib(folder: Path) -> Iterator[Path]:
    from tests.files.test_models_inside import joblibs

    for aligned in (True, False):
        path = folder / f"m{int(aligned)}.joblib"
        path.write_bytes(joblibs({"epoch": 1, **_arrays()}, aligned))
        yield path
    packed = folder / "m2.joblib"
    packed.write_bytes(zlib.compress(joblibs({"epoch": 1, **_arrays()}, aligned=False)))
    yield packed


def _architecture(folder: Path) -> Iterator[Path]:
    """Yield weights alone with the architecture of their model beside them."""
    import h5py

    config = {"name": "lstm_1", "units": 3, "activation": "relu", "recurrent_activation": "sigmoid", "use_bias": True}
    layers = [{"class_name": "LSTM", "config": {**config, "batch_input_shape": [None, 4, 2]}}]
    model = {"class_name": "Sequential", "config": {"name": "m", "layers": layers}, "keras_version": "2.4.0"}
    # YAML holds JSON, but for how its lines begin.
    lines = ("class_name: Sequential", "config:", "  name: m", f"  layers: {json.dumps(layers)}", "keras_version: 2.4.0")
    for end, text in (("json", json.dumps(model)), ("yaml", "\n".join(lines))):
        (folder / end).mkdir()
        (folder / end / f"model.{end}").write_text(text)
        with h5py.File(folder / end / "weights.h5", "w") as file:
            group = file.create_group("lstm_1/lstm_1")
            file.attrs["layer_names"] = [b"lstm_1"]
            file["lstm_1"].attrs["weight_names"] = [b"lstm_1/kernel:0", b"lstm_1/recurrent_kernel:0", b"lstm_1/bias:0"]
            for name, shape in (("kernel:0", (2, 12)), ("recurrent_kernel:0", (3, 12)), ("bias:0", (12,))):
                group.create_dataset(name, data=np.ones(shape, np.float32))
        yield folder / end / "weights.h5"


def _tutorials(folder: Path) -> Iterator[Path]:
    """Yield cells under the names that tutorials give."""
    gates = {f"W{gate}": np.ones((3, 5), np.float32) for gate in "ifco"} | {f"b{gate}": np.ones((3, 1), np.float32) for gate in "ifco"}
    theano = {"lstm_W": np.ones((2, 12), np.float32), "lstm_U": np.ones((3, 12), np.float32), "lstm_b": np.ones(12, np.float32)}
    karpathy = {"Wxh": np.ones((3, 2)), "Whh": np.ones((3, 3)), "bh": np.ones((3, 1))}
    cells: list[dict[str, Any]] = [gates, theano, karpathy]
    for number, arrays in enumerate(cells):
        np.savez(folder / f"m{number}.npz", **arrays)
        yield folder / f"m{number}.npz"
        (folder / f"m{number}.pkl").write_bytes(pickle.dumps(arrays))
        yield folder / f"m{number}.pkl"


def _json(folder: Path) -> Iterator[Path]:
    """Yield JSON of an amplifier with its sample, and of brain.js."""
    weights = [np.ones(shape).tolist() for shape in ((1, 8), (2, 8), (8,))]
    row = [{"type": "lstm", "activation": "", "shape": [None, None, 2], "weights": weights},
           {"type": "dense", "activation": "tanh", "shape": [None, None, 1], "weights": [[[1.0], [1.0]], [0.5]]}]  # fmt: skip
    sample = {"input_batch": [0.1, 0.2, 0.3], "output_batch": [0.1, 0.2, 0.3]}
    (folder / "amp.json").write_text(json.dumps({"in_shape": [None, None, 1], "in_skip": 1, "layers": row, **sample}))
    yield folder / "amp.json"
    for name in ("GRU", "RNNTimeStep", "LSTMTimeStep"):
        shutil.copy(GOLDEN / "brainjs" / f"{name}.json", folder)
        yield folder / f"{name}.json"


_MAKERS: dict[str, Callable[[Path], Iterator[Path]]] = {
    "torch": _torch, "shards": _shards, "jld2": _jld2, "dl4j": _dl4j, "onnxtxt": _onnxtxt, "onnx-folded": _folded, "gz": _gzipped,
    "h5-library": _dense_hdf5, "only-read": _only_read, "inside": _inside, "joblib": _joblib, "architecture": _architecture,
    "tutorials": _tutorials, "json-networks": _json,
}  # fmt: skip
OTHERS = tuple(_MAKERS)
"""The kinds of files that are only read, or that others write."""


def _golden(folder: Path, kinds: Sequence[str]) -> Iterator[Seed]:
    """Yield the small files that other frameworks wrote for the tests."""
    for path in sorted((GOLDEN / "frozen").glob("*.tflite")):
        yield Seed("tflite-steps", f"steps_{path.name}", {f"steps_{path.name}": path.read_bytes()})
    for path in sorted((GOLDEN / "fuse").glob("*.onnx"), key=lambda file: file.stat().st_size)[:16]:
        yield Seed("onnx-steps", f"steps_{path.name}", {f"steps_{path.name}": path.read_bytes()})
        yield Seed("fuse", f"fuse_{path.name}", {f"fuse_{path.name}": path.read_bytes()})
    masked = (GOLDEN / "fuse" / "keras_masked.onnx").read_bytes()
    yield Seed("fuse", "fuse_masked.onnx", {"fuse_masked.onnx": masked})
    for path in sorted((GOLDEN / "paddle_inference").glob("*.json")):
        files = {path.name: path.read_bytes(), f"{path.stem}.pdiparams": path.with_suffix(".pdiparams").read_bytes()}
        yield Seed("pdmodel", path.name, files)
    for path in sorted(GOLDEN.rglob("*")):
        if (
            path.is_file()
            and path.suffix
            in (".h5", ".keras", ".params", ".pb", ".npz", ".safetensors", ".index", ".mlmodel", ".pkl", ".pdmodel", ".pdiparams")
            and "Data" not in path.parts
        ):
            name = path.name
            neighbours = [file for file in path.parent.iterdir() if file.is_file() and file.name.startswith(path.stem) and file != path]
            files = {name: path.read_bytes()} | ({file.name: file.read_bytes() for file in neighbours} if len(neighbours) < 4 else {})
            yield Seed(kind_of(name), name, files)
        elif path.suffix == ".mlpackage":
            files = {str(file.relative_to(path.parent)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}
            yield Seed("mlpackage", path.name, files)
        elif path.is_dir() and any(file.name.endswith(("w_0", "__params__")) for file in path.iterdir()):
            yield Seed("fluid", path.name, {f"{path.name}/{file.name}": file.read_bytes() for file in path.iterdir() if file.is_file()})


def _whole_models(folder: Path, kinds: Sequence[str]) -> Iterator[Seed]:
    for kind, path in whole.seeds(folder, kinds):
        yield _seed(kind, path)


def _real(folder: Path, kinds: Sequence[str]) -> Iterator[Seed]:
    """Yield the smallest real files of every kind, where there are any."""
    counts: dict[str, int] = {}
    paths = [path for path in FOLDER.rglob("*") if path.is_file() and path.stat().st_size <= LARGEST] if FOLDER.is_dir() else []
    for path in sorted(paths, key=lambda path: (path.stat().st_size, path)):
        kind = kind_of(path.name)
        if kind not in REAL or (kinds and kind not in kinds) or counts.get(kind, 0) >= 12:
            continue
        try:
            if not rc.load(path).layers:
                continue
        except Exception:  # only files that are read are seeds; what else is found is the fuzzer's to report
            continue
        counts[kind] = counts.get(kind, 0) + 1
        yield Seed(kind, path.name, {path.name: path.read_bytes()})


REAL = {
    "h5",
    "keras",
    "onnx",
    "onnxtxt",
    "pt",
    "npz",
    "params",
    "bson",
    "pdparams",
    "t7",
    "tflite",
    "safetensors",
    "msgpack",
    "tensorflow",
    "pb",
    "zip",
}

if __name__ == "__main__":
    print(json.dumps(_make(Path(sys.argv[1]), sys.argv[2:])))
