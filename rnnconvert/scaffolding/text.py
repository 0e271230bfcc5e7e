"""The text of a written file: its classes or functions, what fills them, and what runs them."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rnnconvert.core.errors import RefusedError
from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.channels import channels_last
from rnnconvert.scaffolding.description import DescribedModel, Description, Value
from rnnconvert.scaffolding.directions import apart
from rnnconvert.scaffolding.names import Names, class_name, comment
from rnnconvert.scaffolding.writer import File, Module, Rule


@dataclass(frozen=True)
class Style:
    """A target's additions to the text of a file.

    module     its class of a model
    rules      its lines, by the kinds of nodes
    texts      the helpers that its lines may name
    reserved   the names at the top of the file that are taken
    named      returns the name of the class or the function of a model, from a class's name
    imports    returns the lines that import what a file needs
    new_model  the expression of a new model, with its class or function {model}, and a line behind it
    restores   the lines that fill a model from one of the framework's own files, at `path`, by the endings of its name
    ran        the lines that run a model on {zeros}
    zeros      returns zeros of some sizes and a type
    needs      the requirements of a file with weights in the framework's own format, as a sentence
    ended      whether its layers over space have their channels at the end
    unlike     whether its layers of two directions may have unlike cells
    several    the types in which a model gives several outputs
    """

    module: type[Module]
    rules: Mapping[type[kinds.Kind], Rule]
    texts: Mapping[str, str]
    reserved: frozenset[str]
    named: Callable[[str], str]
    imports: Callable[[File, str], list[str]]
    new_model: str
    restores: Mapping[str, str]
    ran: str
    zeros: Callable[[str, str], str]
    needs: str
    ended: bool = True
    unlike: bool = False
    several: str = "tuple"


_LOAD = '''def load(path{more}):
    """Return the model with the weights of the file that it was written from{others}."""
    model = {new_model}
{written}    from rnnconvert import load_into

    load_into(model, path{layers}, accept=["all"], flatten="same"{options})
    return model
'''
_MAIN = '''def main():
    """Run the model on zeros, with the weights of a file if one is named."""
    model = load({words}) if len(sys.argv) > 1 else {new_model}
    {ran}
    for output in outputs if isinstance(outputs, {several}) else [outputs]:
        print(tuple(output.shape))


if __name__ == "__main__":
    main()
'''


def text(description: Description, source: str, style: Style) -> tuple[str, tuple[str, ...]]:
    """Return the file, and what is left out of it. Raises RefusedError for a layer without an equivalent."""
    if style.ended:
        channels_last(description.scope, description.partial)
    if not style.unlike:
        apart(description.scope)
    _check_once(description.scope)
    file, top = (
        File(Names({"sys", "hashlib", "os", "LAYERS", "WEIGHTS", "is_written", "load", "main", *style.reserved, *style.texts})),
        description.scope,
    )
    file.words, file.partial, file.checks = description.words, description.partial, description.checks
    word = class_name(top.name)
    name = file.names.new(style.named("Model" if word.startswith(("Functional", "Sequential", "Model")) else word))
    bodies = []
    for scope in (*top.inner(), top):
        file.classes[id(scope)] = name if scope is top else file.names.new(style.named(class_name(scope.name)))
        file.modules[id(scope)] = module = style.module(file, scope)
        module.write(style.rules)
        bodies.append(module.text(file.classes[id(scope)], scope is top))
    layers = {part: description.names[path][0] for part, path in _parts_of(file.modules[id(top)]).items() if path in description.names}
    rows = [f"    {json.dumps(ours)}: {json.dumps(theirs)}," for ours, theirs in layers.items()]
    table = ["\n".join(["LAYERS = {", *rows, "}", '"""Its layers, and what fills them in the file."""', ""])] if layers else []
    parts = [
        *(style.texts[word] for word in file.helpers),
        *(make(word, cell, wishes) for word, (cell, wishes, make) in file.loops.items()),
        *file.extras,
        *bodies,
    ]
    new_model, options = style.new_model.format(model=name), description.options
    lax = ", strict=False" if file.missing else ""
    parts.append(
        _LOAD.format(
            new_model=new_model,
            layers=", LAYERS" if layers else "",
            more="".join(f", {option}" for option in options),
            options=lax + "".join(f", {option}={option}" for option in options),
            written=_restoring(style, description.weights),
            others="".join(f"; {option} is {comment(Path(file).name)}, which states the model" for option, file in options.items()),
        )
    )
    lengths: dict[str, int] = {}
    zeros = ", ".join(style.zeros(_sizes(value, lengths), value.dtype) for value in top.inputs)
    words = "*sys.argv[1:]" if options else "sys.argv[1]"
    parts.append(_MAIN.format(new_model=new_model, ran=style.ran.format(zeros=zeros), words=words, several=style.several))
    table += [IS_WRITTEN.format(name=json.dumps(description.weights), digest=OPEN_DIGEST)] if description.weights else []
    body = [*table, *(f"\n{part}" for part in parts)]
    notes = description.notes_of_code
    head = [f'"""The model of {comment(source)}, written by rnnconvert.', ""]
    head += [*(f"{comment(note)}." for note in dict.fromkeys(notes)), ""] if notes else []
    if file.missing:
        head += ["Not written, and named where they belong:", *(f"  {why}" for why in dict.fromkeys(file.missing)), ""]
    head += [
        f"load fills it from that file; {style.needs}",
        '"""',
        "",
        *(["import hashlib", "import os"] if description.weights else []),
        "import sys",
        "",
        *style.imports(file, "".join(body)),
        "",
    ]
    return "\n".join(["\n".join(head), *body]), tuple(dict.fromkeys(file.missing))


OPEN_DIGEST = "0" * 64
"""The stand-in in the text for the digest of the file of weights until that is written."""

IS_WRITTEN = '''WEIGHTS = ({name}, "{digest}")
"""The file of weights that was written with this code, and its SHA-256."""


def is_written(path):
    """Return whether these weights were written with this code. Raises ValueError for others in a file of their name."""
    if not isinstance(path, (str, os.PathLike)) or not os.path.isfile(path) or os.path.basename(path) != WEIGHTS[0]:
        return False
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    digits = digest.hexdigest()
    if digits != WEIGHTS[1]:
        raise ValueError(f"{{path}} was not written with this code, or was changed. If it is meant, put into WEIGHTS: {{digits}}")
    return True
'''


def _restoring(style: Style, weights: str) -> str:
    """Return the lines of load that fill the model from the weights that are written with the code."""
    if not weights:
        return ""
    lines = next(text for ending, text in style.restores.items() if weights.endswith(ending)).splitlines()
    return "".join(f"    {line}\n" for line in ("if is_written(path):", *(f"    {line}" for line in lines), "    return model"))


def _check_once(top: DescribedModel) -> None:
    """Raise RefusedError for a model that is called on tensors of several kinds: its layers are written once, for one kind."""
    paths = [scope.path for scope in top.inner()]
    twice = next((path for path in paths if paths.count(path) > 1), None)
    if twice is not None:
        feature = "a model called on tensors of several shapes, or with a mask and without"
        raise RefusedError(feature, "a model written as code", "it is written once, for one kind of input", "", twice)


def _sizes(value: Value, lengths: dict[str, int]) -> str:
    """Return sizes for an input, with numbers for its open axes, the same for those that are as long as one another."""
    words = (*value.axes, *[""] * (len(value.shape) - len(value.axes)))
    chosen = [16 if axis else 2 for axis in range(len(value.shape))]
    chosen = [lengths.setdefault(word, size) if word else size for word, size in zip(words, chosen, strict=True)]
    listed = ", ".join(str(chosen[axis] if size is None else size) for axis, size in enumerate(value.shape))
    return listed if len(value.shape) > 1 else f"{listed},"


def submodules(module: Module, prefix: str = "") -> dict[str, str]:
    """Return the submodules other than models, as state_dict calls them, and the layers that they are, by their paths."""
    modules: dict[str, str] = {}
    for node in module.scope.with_steps():
        if node.layer not in module.parts:
            continue
        part = prefix + module.parts[node.layer][0]
        if isinstance(node.kind, kinds.Model):
            modules |= submodules(module.file.modules[id(node.kind.scope)], part + module.SEPARATOR)
            continue
        layer = module.scope.inside(node.source)
        if node.layer in module.inside:
            modules |= {f"{part}{module.SEPARATOR}{inner}": f"{layer}/{name}" for inner, name in module.inside[node.layer].items()}
        else:
            modules[part + module.within.get(node.layer, "")] = layer
    return modules


def _parts_of(module: Module) -> dict[str, str]:
    """Return the submodules as LAYERS names them, and their layers: those that are one layer of the source with a plus between."""
    parts: dict[str, list[str]] = {}
    for part, layer in submodules(module).items():
        parts.setdefault(layer, []).append(part)
    return {" + ".join(several): layer for layer, several in parts.items()}


def imported(path: Path) -> tuple[Any, dict[str, str]]:
    """Return the function that makes the model of a file that `text` wrote, and its layers with the source's layers that fill them."""
    spec = importlib.util.spec_from_file_location("rnnconvert_scaffold", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        spec.loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = before
    ours = [name for name, value in vars(module).items() if getattr(value, "__module__", "") == spec.name]
    make = getattr(module, next(name for name in reversed(ours) if name not in ("load", "main", "is_written")))
    return make, getattr(module, "LAYERS", {})
