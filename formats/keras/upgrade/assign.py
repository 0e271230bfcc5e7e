"""The arrays of an old Keras file, each to the layer of the model that it is of."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from rnnconvert.core.arrays import Array
from rnnconvert.formats.keras.config import labels
from rnnconvert.formats.keras.model.entries import NORMED, NORMS, RECURRENT
from rnnconvert.formats.keras.model.tree import SourceLayer
from rnnconvert.formats.keras.upgrade.config import rule_of
from rnnconvert.formats.keras.upgrade.notes import refuse
from rnnconvert.formats.keras.upgrade.operations import OPERATIONS

_OLD_STYLE = re.compile(r"[WUb](_[icfozrh])?|gamma|beta|running_mean|running_std|alphas")
"""Weights that Keras 1 names after their layer: dense_1_W."""


_PER_GATE = {"LSTM": "icfo", "GRU": "zrh"}


def words_of(old: SourceLayer, per_gate: bool = False) -> list[tuple[tuple[str, ...], bool]]:
    """Return the names of a layer's own weights, and whether each is trained."""
    if old.is_model or old.kind == "InputLayer":
        return []
    if old.kind in OPERATIONS:
        return []
    rule = rule_of(old.entry)
    if per_gate and old.kind in _PER_GATE:
        return [((f"{part}_{gate}",), True) for gate in _PER_GATE[old.kind] for part in "WUb"]
    words = []
    for word in rule.weights.split():
        word, _, key = word.partition("?")
        stated = old.config.get("bias" if key == "use_bias" and "bias" in old.config else key, key != "use_scale")
        if not key or stated:
            words.append((tuple(word.lstrip("-").split("|")), not word.startswith("-")))
    return words


def _trainable(old: SourceLayer, per_gate: bool) -> list[tuple[SourceLayer, bool]]:
    """Return whose weights the trained ones of a layer are, in the order in which Keras lists them."""
    if not old.config.get("trainable", True):
        return []
    trained_words = [(old, True) for _, trained in words_of(old, per_gate) if trained]
    return trained_words + [pair for child in old.inside for pair in _trainable(child, per_gate)]


def _others(old: SourceLayer, per_gate: bool) -> list[tuple[SourceLayer, bool]]:
    frozen_words = [(old, False) for _, trained in words_of(old, per_gate) if not trained]
    below = [other for child in old.inside for other in _others(child, per_gate)]
    if old.config.get("trainable", True):
        return frozen_words + below
    frozen = [(old, True) for _, trained in words_of(old, per_gate) if trained]
    return [*frozen, *[pair for child in old.inside for pair in _trainable(child, per_gate)], *frozen_words, *below]


def assign(top: SourceLayer, names: Sequence[str], arrays: Mapping[str, Array]) -> set[str]:
    """Give a layer of the file, and what is inside it, its arrays; return their names.

    names  as the file lists them for the layer: trained first, then the others, each in the order of the layers
    Raises RefusedError if they are not those that the configuration asks for.
    """
    per_gate = any(re.search(r"_[WU]_[icfozrh](:0)?$", name) for name in names)
    owners = _trainable(top, per_gate) + _others(top, per_gate)
    if len(owners) != len(names):
        raise refuse(top.name, f"{len(names)} weights", f"its configuration asks for {len(owners)}: {', '.join(names)[:200]}")
    around = dict(_labels(top))
    labels = {layer.name for layer in top.walk() if not layer.is_model and layer is not top}
    rest: dict[int, list[str]] = {}
    by_id = {id(layer): layer for layer in top.walk()}
    for (owner, _), name in zip(owners, names, strict=True):
        rest.setdefault(id(owner), []).append(name)
        components = set(name.split("/")[:-1]) & labels
        if top.is_model and components and not components & around[id(owner)]:
            raise refuse(top.name, f"the weight {name!r}", f"by its place it belongs to {owner.name!r}, by its name to another layer")
    for identity, full_names in rest.items():
        owner = by_id[identity]
        for full in full_names:
            if full not in arrays:
                raise refuse(top.name, f"the weight {full!r}", "the file lists it, but does not hold it")
        owner.arrays = {word: arrays[full] for word, full in _matched(owner, full_names, per_gate).items()}
    return set(names)


def _labels(layer: SourceLayer, above: frozenset[str] = frozenset()) -> Iterator[tuple[int, frozenset[str]]]:
    """Yield for each layer its own name with the names of the layers around it."""
    names = above | {layer.name}
    yield id(layer), names
    for inner in layer.inside:
        yield from _labels(inner, names)


def _matched(owner: SourceLayer, names: Sequence[str], per_gate: bool) -> dict[str, str]:
    """Return a layer's weights by the first names of the table. Raises RefusedError if they are others."""
    leaves = {full: full.rpartition("/")[2].partition(":")[0] for full in names}
    matched: dict[str, str] = {}
    for exact in (True, False):
        for alternatives, _ in words_of(owner, per_gate):
            for full, leaf in leaves.items():
                fits = any(
                    leaf == alternative if exact else _OLD_STYLE.fullmatch(alternative) is not None and leaf.endswith(f"_{alternative}")
                    for alternative in alternatives
                )
                if fits and alternatives[0] not in matched and full not in matched.values():
                    matched[alternatives[0]] = full
    missing = [alternatives[0] for alternatives, _ in words_of(owner, per_gate) if alternatives[0] not in matched]
    if missing or len(matched) != len(names):
        raise refuse(owner.name, f"weights named {', '.join(leaves.values())}", f"a {owner.kind} has {', '.join(missing) or 'fewer'}")
    return matched


Places = Callable[[SourceLayer], "Mapping[str, str] | None"]
"""A function from a layer to the path below its own of each of its weights, None if the table states it."""


def _nowhere(old: SourceLayer) -> None:
    """Leave every layer to the table."""


_BELOW: Mapping[str, tuple[str, ...]] = {"Bidirectional": ("forward_layer", "backward_layer"), "RNN": ("cell",), NORMED: NORMS}
"""Where the layers inside of a layer are, below its path."""


def assign_by_path(top: SourceLayer, path: str, arrays: Mapping[str, Array], places: Places = _nowhere) -> set[str]:
    """Give a model the arrays of the tree that a .keras file holds; return their names.

    places  tells of layers that the table lacks
    """
    used: set[str] = set()
    inside = [child for child in top.inside if not child.entry.is_operation]
    for child, label in zip(inside, labels(child.entry.short_class_name for child in inside), strict=True):
        if top.is_model or top.kind == "StackedRNNCells":
            below = f"{path}/{'layers' if top.is_model else 'cells'}/{label}"
        else:
            words = _BELOW.get(top.kind, ("layer",))
            below = f"{path}/{words[top.inside.index(child)]}" if len(words) >= len(top.inside) else path
        used |= assign_by_path(child, below.lstrip("/"), arrays, places)
    paths = places(top)
    if paths is None:
        inner = "cell/vars" if _has_cell(top) else "vars"
        firsts = [alternatives[0] for alternatives, _ in words_of(top)]
        paths = {word: f"{inner}/{number}" for number, word in enumerate(firsts)}
    for word, below in paths.items():
        name = f"{path}/{below}"
        if name not in arrays:
            raise refuse(top.name, f"the weight {word!r}", f"the file holds no {name!r}")
        top.arrays[word] = arrays[name]
        used.add(name)
    return used


def _has_cell(layer: SourceLayer) -> bool:
    """Return whether a layer's weights belong to a separate cell."""
    return layer.kind in RECURRENT and not layer.kind.startswith("CuDNN")


def assign_by_names(top: SourceLayer, arrays: Mapping[str, Array]) -> set[str]:
    """Give a model arrays whose names hold the names of the layers around a weight, or of the innermost alone; return their names.

    Raises RefusedError for a weight that the file lacks or holds more than once.
    """
    labels = frozenset(layer.name for layer in top.walk() if layer is not top)
    by_owner: dict[tuple[bool, str, str], list[tuple[frozenset[str], str]]] = {}
    for name in arrays:
        *components, leaf = name.split("/")
        for of_cell, above in ((False, components), (True, components[:-1])):
            innermost = next((label for label in reversed(above) if label in labels), "")
            by_owner.setdefault((of_cell, innermost, leaf), []).append((labels.intersection(above), name))
    around = dict(_labels(top))
    # TimeDistributed builds its layer under its own name: source: keras/layers/rnn/time_distributed.py of Keras 2, build. So does the
    # RNN of TensorFlow.js its cell: source: tfjs-layers 4.22 src/layers/recurrent.ts, RNN.build.
    around_nameless = {id(inner): layer.name for layer in top.walk() if layer.kind in ("TimeDistributed", "RNN") for inner in layer.inside}
    all_components = {component for name in arrays for component in name.split("/")}
    used: set[str] = set()
    for layer in top.walk():
        place, owner = (around[id(layer)] - {top.name}) & labels, layer.name
        if id(layer) in around_nameless and layer.name not in all_components:
            place -= {layer.name}
            owner = around_nameless[id(layer)]
        for alternatives, _ in words_of(layer):
            # A ConvLSTM of Keras 2 names its weights itself. Source: tf_keras/src/layers/rnn/base_conv_lstm.py, ConvLSTMCell.build.
            of_cell = _has_cell(layer) and not layer.kind.startswith("ConvLSTM")
            names = _at(by_owner, place, owner, alternatives, of_cell) or _at(by_owner, place, owner, alternatives, False)
            if len(names) != 1 or names[0] in used:
                raise refuse(layer.name, f"the weight {alternatives[0]!r}", f"the file holds {len(names)} arrays of that name for it")
            layer.arrays[alternatives[0]] = arrays[names[0]]
            used.add(names[0])
    return used


def _at(
    by_owner: Mapping[tuple[bool, str, str], Sequence[tuple[frozenset[str], str]]],
    place: frozenset[str],
    owner: str,
    words: Sequence[str],
    of_cell: bool,
) -> list[str]:
    """Return the arrays of a layer by the names of a weight: those that name all layers around it, or else those that name some."""
    named = [pair for word in words for pair in by_owner.get((of_cell, owner, word), ()) if pair[0] <= place]
    return [name for labels, name in named if labels == place] or [name for _, name in named]
