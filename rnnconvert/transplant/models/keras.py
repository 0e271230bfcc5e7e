"""Keras models as a transplant sees them: live ones on any backend, and files of every era."""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert import registry
from rnnconvert.adapters.keras import read_stored
from rnnconvert.adapters.keras_cells import Found, Place
from rnnconvert.adapters.keras_config import Entry, children, entry, snake_case, tree
from rnnconvert.arrays import Array
from rnnconvert.checkpoint import Checkpoint
from rnnconvert.containers import hdf5, keras_zip
from rnnconvert.containers.stored import Stored
from rnnconvert.errors import UsageError
from rnnconvert.fitting import fit
from rnnconvert.modules import outline
from rnnconvert.transplant.model import Group, Model, Unit, by_class, loose_units, plain_units, units_of_ours
from rnnconvert.weights import Direction, Recurrent

_RECURRENT_FACTS = ("return_sequences", "stateful", "dropout", "recurrent_dropout")
_LACKING = {"use_bias": ("bias", "b"), "scale": ("gamma",), "center": ("beta",)}
"""What a configuration turns off, and the variables that are absent then."""
_ASIDE = re.compile(
    r"(^|/)(_?optimizer(_weights)?|training|metrics|loss|seed_generator(_\d+)?|top_level_model_weights)(/|$)"
)


NAME = "keras"


def takes(value: Any) -> bool:
    """Whether a live object is a Keras layer or model."""
    keras = sys.modules.get("keras")
    return keras is not None and isinstance(value, keras.layers.Layer)


_OPTIMIZER = re.compile(r"_?optimizer(_weights)?(/|$)|training(/|$)")


def of_live(model: Any) -> Model:
    """A keras.Model or layer, with the variables of all its layers.

    Raises UsageError for a model that is not built yet, or is quantised.
    """
    if not model.built or not model.weights:
        raise UsageError(f"the Keras model {model.name!r} is not built yet: call it once, or model.build(input_shape)")
    variables: dict[str, Any] = {}
    units: list[Unit] = []
    for path, layer in _leaves(model):
        if getattr(layer, "quantization_mode", None):
            raise UsageError(f"layer {path!r} is quantised; fill the float model first, then quantise it")
        named = _named(path, layer)
        arrays = {name: _numbers(weight) for name, weight in named.items()}
        variables |= named
        units += _live_units(path, layer, arrays)
    arrays = {name: _numbers(weight) for name, weight in variables.items()}
    config = model.get_config() if hasattr(model, "layers") else {}
    described = entry({"class_name": type(model).__name__, "config": config}) if config else None
    units = _in_graph(units, described)
    line = _is_line(described, units)
    units += loose_units(arrays, [name for unit in units for name in unit.arrays])
    ties: dict[str, str] = {}
    first: dict[int, str] = {}
    for name, weight in variables.items():
        if first.setdefault(id(weight), name) != name:
            ties[name] = first[id(weight)]
    return Model(
        "keras", f"Keras model {model.name!r}", tuple(units), arrays, line, {}, ties,
         lambda new: _fill(model, variables, new), model,
    )  # fmt: skip


def variables_of(model: Any) -> dict[str, Any]:
    """The variables of a live model by the names that its arrays have here."""
    return {name: weight for path, layer in _leaves(model) for name, weight in _named(path, layer).items()}


def _named(path: str, layer: Any) -> dict[str, Any]:
    """A layer's variables that are weights, by their names."""
    own = {
        _relative(weight.path, layer): weight for weight in layer.weights if "seed" not in weight.dtype + weight.name
    }
    return {
        f"{path}/{name}": weight for name, weight in own.items() if str(weight.dtype).startswith(("float", "bfloat"))
    }


def _numbers(weight: Any) -> Array:
    import keras

    return np.asarray(keras.ops.convert_to_numpy(weight))


def _leaves(layer: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every layer that has variables of its own, by its path through the models around it."""
    inner = list(getattr(layer, "layers", None) or [])
    around = getattr(layer, "layer", None)
    kind = type(layer).__name__
    if kind not in ("Bidirectional", "RNN") and (inner or around is not None):
        for child in inner or [around]:
            name = child.name if inner else layer.name
            yield from _leaves(child, f"{path}/{name}".lstrip("/") if inner else path or layer.name)
        return
    below = [child for child in getattr(layer, "_layers", []) if child.weights and not _is_recurrent(layer)]
    for child in below:
        yield from _leaves(child, f"{path}/{child.name}".lstrip("/"))
    if layer.weights and not below:
        yield path or layer.name, layer


def _is_recurrent(layer: Any) -> bool:
    return type(layer).__name__ == "Bidirectional" or hasattr(layer, "cell")


def _relative(path: str, layer: Any) -> str:
    """A variable's path below its layer."""
    return path.partition(f"{layer.name}/")[2] or path


def _live_units(path: str, layer: Any, arrays: dict[str, Array]) -> list[Unit]:
    config = layer.get_config()
    described = {"class_name": type(layer).__name__, "module": type(layer).__module__, "config": config,
                 "registered_name": None if type(layer).__module__.startswith("keras.") else type(layer).__name__}  # fmt: skip
    ours = sys.modules.get("rnnconvert.modules.keras")
    if ours is not None and isinstance(layer, ours.ForeignRecurrent):
        names = {name.rpartition("/")[2]: name for name in arrays}
        facts = {"batch_first": True}
        return units_of_ours(path, layer.recurrent(), outline.KERAS, names, facts, "ForeignRecurrent")
    if _is_recurrent(layer):
        whole = {"class_name": "Sequential", "config": {"layers": [described]}}
        short = {name.removeprefix(f"{path}/"): array for name, array in arrays.items()}
        local = {f"{layer.name}/{name}": array for name, array in short.items()}
        import keras

        found = read_stored(Stored(local, {"config": whole, "metadata": {"keras_version": keras.__version__}}))
        places: Any = found.metadata["places"]
        return [
            unit
            for name, stack in found.layers.items()
            for unit in _recurrent(
                path, stack, places[name], entry(described), lambda n: f"{path}/{n.partition('/')[2]}"
            )
        ]
    names = {name.rpartition("/")[2]: name for name in arrays}
    made = f"{type(layer).__name__}({layer.name!r})"
    return plain_units("keras", path, type(layer).__name__, names, arrays, config.get, made)


def _recurrent(name: str, stack: Recurrent, place: Place, where: Entry | None, full: Any = str) -> list[Unit]:
    """A layer, or the layers of stacked cells; in two directions that meet only at the end, these are one."""
    facts = _facts(where)
    made = where.class_name if where is not None else ""
    if stack.num_layers > 1 and stack.num_directions > 1:
        return [Unit(name, stack=stack.but(name=name), facts=facts, made=made)]
    units = []
    for number, layer in enumerate(stack.layers):
        own = name if stack.num_layers == 1 else f"{name}[{number}]"
        groups = tuple(
            _group(place.cells[number, way], way, direction, full) for way, direction in enumerate(layer.directions)
        )
        order = stack.output_order if number == stack.num_layers - 1 else "time"
        single = stack.but(name=own, layers=(layer,), output_order=order)
        units.append(Unit(own, stack=single, groups=groups, facts=facts, made=made))
    return units


def _group(cell: Found, way: int, direction: Direction, full: Any) -> Group:
    shapes = {local: tuple(array.shape) for local, array in cell.arrays.items()}
    layouts = registry.frameworks()["keras"]
    of_cell = [x for x in layouts if (x.kind, x.reset_after) == (direction.cell.kind, direction.cell.reset_after)]
    layout = next(layout for layout in of_cell if fit(layout, shapes) is not None)
    return Group(layout, (way,), {local: full(name) for local, name in zip(cell.arrays, cell.names, strict=True)})


def _facts(where: Entry | None) -> dict[str, Any]:
    while where is not None and where.class_name in ("Bidirectional", "TimeDistributed"):
        where = where.inner("layer")
    if where is None:
        return {}
    return {"batch_first": True, **{key: where.config[key] for key in _RECURRENT_FACTS if key in where.config}}


def _fill(model: Any, variables: Mapping[str, Any], new: Mapping[str, Array]) -> Any:
    """Assign the arrays; whatever happens meanwhile, all of them or none."""
    before = {name: _numbers(variables[name]).copy() for name in new}
    try:
        for name, array in new.items():
            variables[name].assign(np.ascontiguousarray(array))
    except BaseException:
        for name, array in before.items():
            variables[name].assign(array)
        raise
    return model


def of_checkpoint(checkpoint: Checkpoint) -> Model:
    """A file of any era; without a configuration, a layer's class is what its name and arrays say."""
    places: Mapping[str, Place] = checkpoint.metadata["places"]  # type: ignore[assignment]
    model: Entry | None = checkpoint.metadata.get("model")  # type: ignore[assignment]
    entries: Mapping[str, Entry | None] = checkpoint.metadata["entries"]  # type: ignore[assignment]
    arrays = dict(checkpoint.tensors)
    aside = {name: "state of training, not weights" for name in arrays if _ASIDE.search(name)}
    units: list[Unit] = []
    ours: Mapping[str, Mapping[str, str]] = checkpoint.metadata.get("ours", {})  # type: ignore[assignment]
    for name, stack in checkpoint.layers.items():
        if name in ours:
            units += units_of_ours(name, stack, outline.KERAS, ours[name], {"batch_first": True}, "ForeignRecurrent")
            own = outline.numbers(stack, outline.KERAS)
            arrays |= {ours[name][local]: array for local, array in own.items()}
            continue
        for cell in places[name].cells.values():
            arrays |= dict(zip(cell.names, cell.arrays.values(), strict=True))
        units += _recurrent(name, stack, places[name], entries[name])
    paths = dict(tree(model)) if model is not None else {}
    taken = {name for unit in units for name in unit.arrays} | set(aside)
    for owner, names in _owners(checkpoint, [name for name in checkpoint.tensors if name not in taken]).items():
        where = _described(owner, model, paths)
        class_name, name = (where.class_name, where.name) if where is not None else (_class_in(owner), "")
        name = name or _said_name(checkpoint, owner)
        locals_ = _locals(names, class_name, where)
        config: Mapping[str, Any] = where.config if where is not None else {}
        units += plain_units("keras", name, class_name if by_class("keras", class_name) else "", locals_, arrays,
                             config.get, class_name)  # fmt: skip
    units = _in_graph(units, model)
    line = _is_line(model, units)
    units += loose_units(arrays, {name for unit in units for name in unit.arrays} | set(aside))
    return Model("keras", checkpoint.path, tuple(units), arrays, line, aside, undecided=checkpoint.undecided)


def write(path: Path, checkpoint: Checkpoint, arrays: Mapping[str, Array]) -> list[str]:
    """A file like the one that was read, with some arrays replaced.

    Raises UsageError for another kind of file, and for a SavedModel or TensorFlow checkpoint.
    """
    source = Path(checkpoint.path)
    zipped, asked = "metadata" in checkpoint.metadata, path.suffix == ".keras"
    if source.is_dir() or not {path.suffix, source.suffix} <= {".keras", ".h5", ".hdf5"} or zipped != asked:
        kind = ".keras" if zipped else ".h5"
        raise UsageError(f"{path}: the target {checkpoint.path} is written again as what it is, a {kind} file")
    held = dict(checkpoint.tensors)
    places: Any = checkpoint.metadata["places"]
    for place in places.values():
        for cell in place.cells.values():
            held |= dict(zip(cell.names, cell.arrays.values(), strict=True))
    left_out = {name for name in held if _OPTIMIZER.match(name)}
    made = {name: arrays.get(name, array) for name, array in held.items() if name not in left_out}
    attributes: Any = checkpoint.metadata.get("attributes", {})
    attributes = {name: values for name, values in attributes.items() if not _OPTIMIZER.match(name)}
    if zipped:
        config: Any = checkpoint.metadata["config"]
        metadata: Any = checkpoint.metadata["metadata"]
        keras_zip.write(path, config, metadata, made, attributes)
    else:
        hdf5.write(path, made, attributes)
    return ["the optimizer's state of the target file is left out: it is of the old weights"] if left_out else []


def _owners(checkpoint: Checkpoint, names: Iterable[str]) -> dict[str, list[str]]:
    """Arrays by the layer that they belong to: its path in Keras 3, its name before."""
    attributes: Any = checkpoint.metadata.get("attributes", {})
    owners: dict[str, list[str]] = {}
    for name in names:
        path = name.removeprefix("model_weights/")
        if "/vars/" in f"/{path}":
            owner = path.rpartition("/vars/")[0]
        else:
            parts = path.split("/")
            listed = [part for part in parts if f"model_weights/{part}" in attributes or part in attributes]
            inner = [part for part in parts[:-1] if part not in ("kernel", "bias")]
            owner = "/".join(dict.fromkeys([*listed[:1], *inner[-1:]])) if inner else path
        owners.setdefault(owner, []).append(name)
    return owners


def _described(owner: str, model: Entry | None, paths: Mapping[str, Entry]) -> Entry | None:
    where = paths.get(owner)
    if where is None and model is not None:
        named = {layer.name: layer for layer in _every(model)}
        where = next((named[part] for part in reversed(owner.split("/")) if part in named), None)
    while where is not None and where.class_name in ("TimeDistributed", "SpectralNormalization"):
        inner = where.inner("layer")
        where = Entry(where.name, inner.class_name, inner.config, inner.own) if inner is not None else None
    return where if where is not None and where.own else None


def _every(model: Entry) -> Iterator[Entry]:
    yield model
    for child in children(model):
        yield from _every(child)


def _class_in(owner: str) -> str:
    """The class that a path or a name of Keras's own making says: layers/batch_normalization_1."""
    words = {snake_case(name): name for layout in registry.plain_layouts("keras") for name in layout.classes.split()}
    return words.get(re.sub(r"_\d+$", "", owner.rpartition("/")[2]), "")


def _said_name(checkpoint: Checkpoint, owner: str) -> str:
    attributes: Any = checkpoint.metadata.get("attributes", {})
    said = attributes.get(f"{owner}/vars", {}).get("name")
    return said if isinstance(said, str) and said else owner.rpartition("/")[2] if "layers/" in owner else owner


def _locals(names: Sequence[str], class_name: str, where: Entry | None) -> dict[str, str]:
    """A layer's variables by their own names; Keras 3 numbers them, in the order in which the class makes them."""
    if "/vars/" not in f"/{names[0]}":
        found = {}
        for name in names:
            leaf = name.rpartition("/")[2].partition(":")[0]
            old = re.fullmatch(r".+_(W_carry|b_carry|W|b|gamma|beta|running_mean|running_std)", leaf)
            found[old[1] if old and leaf not in ("depthwise_W",) else leaf] = name
        return found
    layouts = by_class("keras", class_name)
    chosen = [layout for layout in layouts if layout.path] or layouts[:1]
    words = list(dict.fromkeys(tensor.name for layout in chosen for tensor in layout.tensors))
    off = [
        word for key, gone in _LACKING.items() for word in gone if where is not None and where.config.get(key) is False
    ]
    words = [word for word in words if word not in off]
    numbered = sorted(names, key=lambda name: int(last) if (last := name.rpartition("/")[2]).isdecimal() else 0)
    needed = [word for word in words if not any(word in gone for gone in _LACKING.values())]
    if where is None and len(numbered) != len(words):
        words = needed  # without a configuration, some of what may be absent is not told from the rest of it
    return dict(zip(words, numbered, strict=True)) if len(numbered) == len(words) else {name: name for name in names}


def _in_graph(units: list[Unit], model: Entry | None) -> list[Unit]:
    """The layers in the model's order, each dense one behind a Flatten saying so."""
    if model is None:
        return units
    order = [layer.name for layer in _every(model)]
    rank = {name: number for number, name in enumerate(order)}

    def place(unit: Unit) -> int:
        parts = unit.name.partition("[")[0].split("/")
        return next((rank[part] for part in reversed(parts) if part in rank), len(rank))

    behind = _behind_flatten(model)
    return [
        unit.but(facts={**unit.facts, "flatten_order": "channels_last"}) if unit.name.split("/")[-1] in behind else unit
        for unit in sorted(units, key=place)
    ]


# What changes no order of values. A TimeDistributed around such a layer changes none either.
_WEIGHTLESS = ("Dropout", "Activation", "ReLU", "LeakyReLU", "ELU", "Softmax", "GaussianNoise", "InputLayer")


def _behind_flatten(model: Entry) -> set[str]:
    """Names of the layers that read the output of a Flatten or Reshape, through layers that change no order."""
    found: set[str] = set()
    for scope in [one for one in _every(model) if children(one)]:
        layers = {layer.name: _inside(layer) for layer in children(scope)}
        reads = {name: sources[0] for name, sources in _reads(scope).items() if len(sources) == 1}
        for name in layers:
            below = reads.get(name)
            while below in layers and layers[below].class_name in _WEIGHTLESS:
                below = reads.get(below)
            if below in layers and layers[below].class_name in ("Flatten", "Reshape"):
                found.add(name)
    return found


def _inside(layer: Entry) -> Entry:
    """The layer that a TimeDistributed is around."""
    inner = layer.inner("layer") if layer.class_name == "TimeDistributed" else None
    return inner if inner is not None else layer


def _is_line(model: Entry | None, units: Sequence[Unit]) -> bool:
    """Whether data goes through the layers one after the other, so that their order means something."""
    if model is None or model.class_name not in ("Sequential", "Functional", "Model"):
        return False
    if any(children(layer) for layer in children(model)):
        return model.class_name == "Sequential" and all(
            _is_line(layer, units) for layer in children(model) if children(layer)
        )
    reads = _reads(model)
    above: dict[str, set[str]] = {}
    for name, sources in reads.items():  # a configuration has a layer after those that it reads
        above[name] = set(sources) | {further for source in sources for further in above.get(source, ())}
    names = list(dict.fromkeys(unit.name.partition("[")[0].split("/")[0] for unit in units))
    return all(one in above.get(two, ()) for one, two in itertools.pairwise(names))


def _reads(model: Entry) -> dict[str, list[str]]:
    """Which layers each layer reads."""
    listed: Any = model.config.get("layers", [])
    names = [layer.name for layer in children(model)]
    if model.class_name == "Sequential":
        return {two: [one] for one, two in itertools.pairwise(names)}
    found = {}
    for layer in listed if isinstance(listed, list) else []:
        text = str(layer.get("inbound_nodes", "")) if isinstance(layer, Mapping) else ""
        sources = re.findall(r"'keras_history': [\[(]'([^']+)'", text) or re.findall(r"\['([^']+)', \d+, \d+", text)
        own = layer.get("config", {}).get("name") or layer.get("name") if isinstance(layer, Mapping) else ""
        found[str(own)] = list(dict.fromkeys(sources))
    return found
