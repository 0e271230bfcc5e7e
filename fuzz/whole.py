"""Whole models, all operators of ONNX, and files that are none: what `scaffold`, `inspect` and `export` read besides recurrent layers."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import onnx
from onnx import helper

import rnnconvert as rc
from rnnconvert.core.errors import RnnConvertError
from rnnconvert.formats.torch7 import torch7_write
from tests.helpers import sources
from tests.helpers.julia_files import Function, Struct, bson
from tests.helpers.torch7_modules import make, sequence

ROOT = Path(__file__).parents[1]
MODEL, OPERATORS, SPECIAL = "whole_", "operators_", "special_"
"""How the entries of these kinds begin."""

_PARTS = (".params", ".json", ".pdmodel", ".pdiparams")
EXPORTED = (".onnx", ".tflite", ".h", ".nam", ".xml")
ATTRIBUTES = ("axis", "axes", "perm", "to", "body", "hidden_size")
EXAMPLES = ("decoder.keras", "encoder.keras", "old_tagger.h5", "exported.onnx")
STORED = (
    "tflite_fused/fixed_batch.tflite", "frozen/stack.tflite", "tflite_variables/trained.tflite", "tflite_lists/open.tflite",
    "keras_loops/convolved.pb", "frozen/masked_while.pb", "frozen_functions/ways.pb", "keras_2_13/doubled.keras", "coreml/torch.mlmodel",
)  # fmt: skip
PARTED = ("mxnet/fused-0001.params", "paddle_inference/old_gru.pdmodel", "paddle_inference/new_lstm.json")
"""Whole models of the examples, and of the tests' files of other frameworks; of several files each, whose names begin alike."""
WRITTEN = (
    "nam", "aidax", "tflite", "param", "xml", "h", "json", "json-guitarml", "json-rtneural", "json-tfjs", "onnx", "zip",
    "mlpackage",
)  # fmt: skip
"""Endings, and formats where one has several, of what is written of a chain of torch's layers: whole models of other rooms."""


def seeds(folder: Path, kinds: Sequence[str]) -> Iterator[tuple[str, Path]]:
    """Yield kinds and what is to be read, each in a folder of its own: whole models of every room, an LSTM for operators, any file."""
    stored = [*(ROOT / "examples" / name for name in EXAMPLES), *(ROOT / "tests" / "golden" / name for name in STORED)]
    for number, path in enumerate(stored):
        place = folder / f"whole{number}"
        place.mkdir()
        yield _kind(path), Path(shutil.copy(path, place / f"{MODEL}{path.name}"))
    for path in (ROOT / "tests" / "golden" / name for name in PARTED):
        place = folder / path.stem
        place.mkdir()
        start = path.stem.partition("-")[0]
        for part in path.parent.iterdir():
            if part.stem.partition("-")[0] == start and part.suffix in _PARTS:
                shutil.copy(part, place / f"{MODEL}{part.name}")
        yield _kind(path), place / f"{MODEL}{path.name}"
    (folder / "flux").mkdir()
    yield "whole-bson", _chain_of_flux(folder / "flux" / f"{MODEL}m.bson")
    (folder / "torch7").mkdir()
    yield "whole-t7", _modules_of_torch7(folder / "torch7" / f"{MODEL}m.t7")
    if not kinds or any(kind.startswith("whole-") for kind in kinds):
        chains = folder / "chains"
        chains.mkdir()
        words = [sys.executable, "-W", "ignore", "-m", "fuzz.whole", str(chains)]  # torch would make every later process larger
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"the models of torch were not made: {done.stderr}")
        for path in sorted(chains.glob(f"*/{MODEL}m*")):
            if path.suffix[1:] == path.parent.name.partition("-")[0]:
                yield _kind(path), path
    for kind, prefix in (("operators", OPERATORS), ("special", SPECIAL)):
        (folder / kind).mkdir()
        yield kind, sources.write(folder / kind / f"{prefix}m.onnx")


def _chain_of_flux(path: Path) -> Path:
    """Write a Chain of Flux with a layer of each kind that is known, and return its path."""
    table, matrix, bias = (sources.uniform(seed, *shape) for seed, shape in enumerate(((3, 9), (2, 4), (2,)), 1))
    gru = Struct("Flux.GRUCell", sources.uniform(4, 12, 3), sources.uniform(5, 12, 4), sources.uniform(6, 12))
    head = Struct("Flux.Dense", matrix, bias, Function("NNlib.relu"))
    layers = (Struct("Flux.Embedding", table), Struct("Flux.GRU", gru), Struct("Flux.Dropout", 0.5, None, None), head)
    return bson(path, model=Struct("Flux.Chain", layers))


def _modules_of_torch7(path: Path) -> Path:
    """Write modules of Torch7 around a layer that reads whole sequences, and return their path."""
    table, weight, bias, matrix, offset = (sources.uniform(*each) for each in ((1, 6, 3), (2, 7, 16), (3, 16), (4, 2, 4), (5, 2)))
    layer = make("SeqLSTM", weight=weight, bias=bias, batchfirst=False)
    head = sequence(make("Linear", weight=matrix, bias=offset), make("LogSoftMax"))
    torch7_write.write(path, sequence(make("LookupTable", weight=table), layer, make("Dropout", p=0.5, v2=True), make("Sequencer", head)))
    return path


def _kind(path: Path) -> str:
    return f"whole-{path.suffix[1:]}"


def write_chains(folder: Path) -> None:
    """Write a model of torch as a program, twice, and as a whole model of each other format, each in a folder of its own."""
    import torch

    class Chain(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm, self.fc = torch.nn.LSTM(1, 3, batch_first=True), torch.nn.Linear(3, 1)

        def forward(self, x: Any) -> Any:
            return self.fc(self.lstm(x)[0])

    net, x = Chain().eval(), torch.zeros(1, 4, 1)
    for name in ("pt", "pt2", *WRITTEN):
        (folder / name).mkdir()
    torch.jit.save(torch.jit.trace(net, x), folder / "pt" / f"{MODEL}m.pt")
    torch.export.save(torch.export.export(net, (x,)), folder / "pt2" / f"{MODEL}m.pt2")
    torch.save(net.state_dict(), folder / "chain.pt")
    for name in WRITTEN:
        ending, _, format = name.partition("-")
        with contextlib.suppress(RnnConvertError):  # some hold fewer kinds of layers; which ones the test of the kinds says
            rc.export_model(folder / "chain.pt", folder / name / f"{MODEL}m.{ending}", chain="lstm fc", format=format or None)


def with_operator(content: bytes, rng: Random) -> bytes:
    """Return a model with an operator of any name beside its layer, whose inputs have one of the forms that files give them."""
    model = onnx.load_from_string(content)
    operators = sorted({schema.name for schema in onnx.defs.get_all_schemas()})
    first = model.graph.input[0].name
    names = [first, "", "nowhere", model.graph.initializer[0].name if model.graph.initializer else first, model.graph.output[0].name]
    inputs = [rng.choice(names) for _ in range(rng.randrange(6))]
    outputs = [rng.choice(["z", "", "y2"]) for _ in range(rng.randrange(3))]
    node = helper.make_node(rng.choice(operators), inputs, outputs)
    if rng.random() < 0.3:
        node.attribute.append(helper.make_attribute(rng.choice(ATTRIBUTES), rng.randrange(-3, 9)))
    model.graph.node.insert(rng.randrange(len(model.graph.node) + 1), node)
    if rng.random() < 0.3:
        model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = rng.choice([-1, 0, 1, 1 << 62])
    return model.SerializeToString()


def special(path: Path, rng: Random) -> Path:
    """Give a file a strange name, and mostly replace it with a pipe, a folder or a link; return its path."""
    other = path.with_name(path.name + rng.choice(["", "\udcff", "\n", "::error::x", "e\u0301", " "]))
    path.rename(other)
    form = rng.randrange(5)
    if form:
        other.unlink()
    if form == 1:
        os.mkfifo(other)
    elif form == 2:
        other.symlink_to(other)
    elif form == 3:
        other.mkdir()
    elif form == 4:
        other.symlink_to("/dev/zero")
    return other


def read(path: Path, rng: Random, out: Path) -> str:
    """Read a whole model by one of the functions that do, and return the documented end that it had. Raises whatever else happens."""
    uses: list[Callable[[], object]] = [
        lambda: str(rc.inspect(path)),
        lambda: rc.load(path),
        lambda: rc.scaffold(path, rng.choice(["pytorch", "keras", "flax"]), partial=rng.random() < 0.5),
        lambda: rc.export_model(path, out / f"whole{rng.choice(EXPORTED)}", force=True),
        lambda: rc.upgrade(path, out / "upgraded.keras", force=True),
        lambda: rc.diff(path, path),
        lambda: rc.view(path),
        lambda: rc.transplant_file(path, path, out / "transplanted", force=True),
        lambda: rc.convert(path, out / "converted.safetensors", target_format="pytorch", force=True),
    ]
    try:
        rng.choice(uses)()
    except RnnConvertError as error:
        assert error.exit_code in (2, 3, 4, 5), error.exit_code
        assert str(error)
        return error.kind
    return "whole read"


if __name__ == "__main__":
    write_chains(Path(sys.argv[1]))
