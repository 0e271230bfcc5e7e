"""Whole models, all operators of ONNX, and files that are none: what `scaffold`, `inspect` and `export` read besides recurrent layers."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random

import onnx
from onnx import helper

import rnnconvert as rc
from rnnconvert.core.errors import RnnConvertError
from tests import sources

ROOT = Path(__file__).parents[1]
MODEL, OPERATORS, SPECIAL = "whole_", "operators_", "special_"
"""How the entries of these kinds begin."""

ATTRIBUTES = ("axis", "axes", "perm", "to", "body", "hidden_size")
MODELS = ("examples/decoder.keras", "examples/encoder.keras", "examples/old_tagger.h5", "examples/exported.onnx")


def seeds(folder: Path, kinds: Sequence[str]) -> Iterator[tuple[str, Path]]:
    """Yield kinds and what is to be read, each in a folder of its own: models of the examples, an LSTM for operators, any file."""
    for number, name in enumerate(MODELS):
        place = folder / f"whole{number}"
        place.mkdir()
        yield "whole", Path(shutil.copy(ROOT / name, place / f"{MODEL}{Path(name).name}"))
    for kind, prefix in (("operators", OPERATORS), ("special", SPECIAL)):
        (folder / kind).mkdir()
        yield kind, sources.write(folder / kind / f"{prefix}m.onnx")


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
        lambda: rc.export_model(path, out / "whole.onnx", force=True),
        lambda: rc.convert(path, out / "converted.safetensors", target_format="pytorch", force=True),
    ]
    try:
        rng.choice(uses)()
    except RnnConvertError as error:
        assert error.exit_code in (2, 3, 4, 5), error.exit_code
        assert str(error)
        return error.kind
    return "whole read"
