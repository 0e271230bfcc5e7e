"""The text of a torch.nn.Module from a description: names, lines, classes, and the helpers that they need."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rnnconvert.core.cells import Cell
from rnnconvert.core.errors import RefusedError
from rnnconvert.formats.pytorch.scaffold import helpers
from rnnconvert.formats.pytorch.scaffold.loops import loop
from rnnconvert.scaffolding.description import Description, Node, Scope, Shape, Value
from rnnconvert.scaffolding.names import RESERVED, Names, class_name, comment, identifier

Rule = Callable[["Module", Node], str]
"""Returns the expression that a node is, or "" where it wrote its lines itself."""
_PLAIN_INPUTS = ("input", "keras_tensor", "input_layer", "inputs")


@dataclass
class File:
    """A file being written.

    classes   the names of the classes of models, by scope
    loops     the cells that torch.nn lacks, by the names of their classes, and what they are asked for: "both ways", "masked"
    helpers   the functions and classes that stand before them
    functions whether torch.nn.functional is needed
    names     the names at the top of the file
    """

    classes: dict[int, str] = field(default_factory=dict)
    loops: dict[str, tuple[Cell, set[str]]] = field(default_factory=dict)
    helpers: list[str] = field(default_factory=list)
    functions: bool = False
    names: Names = field(
        default_factory=lambda: Names({"torch", "nn", "sys", "F", "LAYERS", "load", "main", *helpers.TEXTS})
    )
    modules: dict[int, Module] = field(default_factory=dict)

    def helper(self, name: str) -> str:
        """Return a helper's name, and see that it stands in the file."""
        if name not in self.helpers:
            self.helpers.append(name)
        return name


class Module:
    """One class: a model of the source."""

    def __init__(self, file: File, scope: Scope) -> None:
        self.file, self.scope = file, scope
        self.parts: dict[str, tuple[str, str]] = {}
        self.states: list[str] = []
        self.lines: list[str] = []
        self._attributes = Names(
            {
                "forward",
                "training",
                "reset_states",
                "eval",
                "train",
                "load_state_dict",
                "state_dict",
                "float",
                "double",
                "type",
                "to",
            }
        )
        self._attribute: dict[str, str] = {}
        self._names = Names({"torch", "nn", "F", "self", "ahead", "back", "h", "c", *helpers.TEXTS})
        self._variables: dict[int, str] = {}
        self._uses: dict[int, int] = {}
        self._pending: dict[int, str] = {}
        for value in (*(value for node in scope.nodes for value in node.reads()), *scope.outputs):
            self._uses[id(value)] = self._uses.get(id(value), 0) + 1
        self.arguments = [self._let(value, self._wanted(value)) for value in scope.inputs]

    def _wanted(self, value: Value) -> str:
        stem = identifier(value.name, "x").rstrip("_")
        stem = stem if stem not in ("", *RESERVED) else "x"
        single = len(self.scope.inputs) == 1
        return "x" if single and stem.rstrip("_0123456789").startswith(_PLAIN_INPUTS) else stem

    def _let(self, value: Value, wanted: str) -> str:
        self._variables[id(value)] = name = self._names.new(wanted)
        return name

    # What rules use

    def __call__(self, value: Value) -> str:
        """Return the expression of a tensor that was computed before."""
        return self._pending.get(id(value)) or self._variables[id(value)]

    def part(self, layer: str, constructor: str) -> str:
        """Return the submodule of a layer, which is made by a constructor."""
        name = self._attribute.get(layer)
        if name is None:
            name = self._attribute[layer] = self._attributes.new(identifier(layer.replace("/", "_")))
            self.parts[layer] = (name, constructor)
        elif self.parts[layer][1] != constructor:
            raise RefusedError(
                "one layer called in two ways",
                "PyTorch",
                f"it would be {self.parts[layer][1]} and {constructor}",
                "",
                layer,
            )
        return f"self.{name}"

    def state(self, layer: str) -> str:
        """Return the attribute in which a stateful layer keeps its states."""
        name = f"{self._attribute[layer]}_state"
        if name not in self.states:
            self.states.append(name)
        return f"self.{name}"

    def helper(self, name: str) -> str:
        """Return a helper's name, and see that it stands in the file."""
        return self.file.helper(name)

    def function(self, name: str) -> str:
        """Return a function of torch.nn.functional."""
        self.file.functions = True
        return f"F.{name}"

    def new(self, value: Value, wanted: str = "") -> str:
        """Return a variable for a tensor: x where that is free, so that a chain of layers reads as one."""
        chain = "x" not in self._names.names and not wanted and value.dtype != "bool"
        stem = identifier(value.name.rstrip("_0123456789") or "x").rstrip("_") or "x"
        return self._let(value, "x" if chain else wanted or ("x" if stem in RESERVED else stem))

    def used(self, value: Value) -> bool:
        """Return whether anything reads a tensor."""
        return bool(self._uses.get(id(value)))

    def line(self, text: str, shape: Shape | None = None) -> None:
        """Add a line of code, with the axes of what it computes."""
        self.lines.append(text + (f"  # {axes(shape)}" if shape is not None else ""))

    # The nodes

    def write(self, rules: dict[str, Rule]) -> None:
        """Write every node. Raises RefusedError for a kind without a rule."""
        nodes = self.scope.nodes
        for number, node in enumerate(nodes):
            rule = rules.get(node.kind)
            if rule is None:
                raise RefusedError(
                    f"a layer of kind {node.kind!r}", "PyTorch", "no line of PyTorch is known for it", "", node.layer
                )
            self._released = False
            text = rule(self, node)
            following = nodes[number + 1] if number + 1 < len(nodes) else None
            self.release(node)
            if not text:
                continue
            inline = following is not None and _takes(following) and following.inputs == node.outputs
            if following is not None and following.kind in _TAKING:  # one step more a line, where it stays short
                inline = (
                    inline
                    and _is_primary(node)
                    and (following.kind == "dense" or node.kind in _MOVING)
                    and len(text) < _WIDEST
                )
            if inline and self._uses.get(id(node.y)) == 1 and "\n" not in text:
                self._pending[id(node.y)] = text
                continue
            self.line(f"{self.new(node.y)} = {text}", node.y.shape)

    def release(self, node: Node) -> None:
        """Let the variables that a node was the last to read be taken for what it gives."""
        if not self._released:
            self._released = True
            for value in node.reads():
                self._read(value)

    def rename(self, value: Value, wanted: str) -> str:
        """Return a new variable for a tensor that may have one already, which is free from then on."""
        if id(value) in self._variables:
            self._names.free(self._variables[id(value)])
        return self._let(value, wanted)

    def stem(self, node: Node) -> str:
        """Return the name of a node's submodule."""
        return self._attribute[node.layer]

    def _read(self, value: Value) -> None:
        self._uses[id(value)] -= 1
        self._pending.pop(id(value), None)
        if not self._uses[id(value)] and id(value) in self._variables:
            self._names.free(self._variables[id(value)])

    def text(self, name: str, first: bool) -> str:
        """Return the class."""
        inputs = [
            f"{argument} {axes(value.shape)}" + ("" if value.dtype == "float32" else f", {value.dtype}")
            for argument, value in zip(self.arguments, self.scope.inputs, strict=True)
        ]
        title = "The whole model" if first else f"The model {comment(self.scope.name)!r} in the model"
        outputs = ", ".join(axes(value.shape) for value in self.scope.outputs)
        lines = [f"class {name}(nn.Module):", f'    """{title}: {", ".join(inputs)} to {outputs}."""', ""]
        lines += ["    def __init__(self):", "        super().__init__()"]
        lines += [f"        self.{part} = {made}" for part, made in self.parts.values()]
        lines += [f"        self.{state} = None  # kept from one call to the next" for state in self.states]
        lines += [
            "",
            f"    def forward(self, {', '.join(self.arguments)}):",
            *(f"        {line}" for line in self.lines),
        ]
        lines += [f"        return {', '.join(self(value) for value in self.scope.outputs)}"]
        if forgotten := [f"self.{state} = None" for state in self.states] + [
            f"self.{part}.reset_states()" for part in self._keeping()
        ]:
            lines += [
                "",
                "    def reset_states(self):",
                '        """Begin anew: forget the states of the last call."""',
            ]
            lines += [f"        {line}" for line in forgotten]
        return "\n".join(lines) + "\n"

    def _keeping(self) -> list[str]:
        """Return the submodules that are models with states to forget."""
        models = {node.layer: self.file.modules[id(node["scope"])] for node in self.scope.nodes if node.kind == "model"}
        return [self._attribute[layer] for layer, inner in models.items() if inner.states or inner._keeping()]

    _released = False


_MOVING = ("transpose", "squeeze", "unsqueeze", "merge axes", "split axis", "flip", "view", "select", "slice", "cast")
_TAKING = ("dense", *_MOVING)
"""What is written behind an expression as behind a variable."""
_WIDEST = 100
"""The longest expression that another is written around."""


def _is_primary(node: Node) -> bool:
    """Return whether a node's line is a call or an index, so that a method may be called on it without brackets."""
    signs = node.kind in (
        "arithmetic",
        "elementwise",
        "matmul",
        "rescale",
        "mask",
        "dot",
        "conv first",
        "pool first",
        "activation",
    )
    return not signs or (node.kind == "activation" and node["name"] != "bounded_relu")


def _takes(node: Node) -> bool:
    """Return whether a node's line takes an expression in place of a variable: one that names it once, in a call."""
    if node.kind == "elementwise":
        return len(node["operands"]) == 1 and node["operation"] in (
            "sqrt",
            "exp",
            "log",
            "abs",
            "erf",
            "sin",
            "cos",
            "floor",
            "round",
            "sign",
        )
    return node.kind in _TAKING or (node.kind == "activation" and node["name"] != "bounded_relu")


def sizes(values: Sequence[int]) -> str:
    """Return sizes as torch takes them: one number where they are alike."""
    return str(values[0]) if len(set(values)) == 1 else str(tuple(values))


def axes(shape: Sequence[int | None]) -> str:
    """Return the axes of a tensor, as a comment."""
    open_axes = ("batch", "time") if len(shape) > 1 else ("batch",)
    words = [
        str(size) if size is not None else open_axes[n] if n < len(open_axes) else "n" for n, size in enumerate(shape)
    ]
    return f"({', '.join(words)}{',' if len(words) == 1 else ''})"


def text(description: Description, source: str) -> str:
    """Return the file. Raises RefusedError for a layer without an equivalent."""
    file, top = File(), description.scope
    named = class_name(top.name)
    name = file.names.new("Model" if named.startswith(("Functional", "Sequential", "Model")) else named)
    bodies = [_body(file, scope, name if scope is top else "") for scope in (*top.inner(), top)]
    paths = submodules(file.modules[id(top)])
    layers = {part: description.names[path][0] for part, path in paths.items() if path in description.names}
    rows = [f"    {json.dumps(ours)}: {json.dumps(theirs)}," for ours, theirs in layers.items()]
    table = (
        ["\n".join(["LAYERS = {", *rows, "}", '"""Its layers, and what fills them in the file."""', ""])]
        if layers
        else []
    )
    defined = [
        *(helpers.TEXTS[word] for word in file.helpers),
        *(loop(word, *cell) for word, cell in file.loops.items()),
        *bodies,
    ]
    zeros = ", ".join(map(_zeros, top.inputs))
    defined += [_LOAD.format(
        model=name, layers=", LAYERS" if layers else "",
        more="".join(f", {option}" for option in description.options),
        options="".join(f", {option}={option}" for option in description.options),
        others="".join(f"; {option} is {comment(Path(file).name)}, which states the model" for option, file in description.options.items()),
    ), _MAIN.format(model=name, zeros=zeros, words="*sys.argv[1:]" if description.options else "sys.argv[1]")]  # fmt: skip
    return "\n".join([_head(file, name, source, description.notes), *table, *(f"\n{part}" for part in defined)])


def _body(file: File, scope: Scope, name: str) -> str:
    """Return the class of a model; its name is made of the model's where it is "", as the outermost's is not."""
    from rnnconvert.formats.pytorch.scaffold.layers import RULES

    file.classes[id(scope)] = name or file.names.new(class_name(scope.name))
    file.modules[id(scope)] = module = Module(file, scope)
    module.write(RULES)
    return module.text(file.classes[id(scope)], bool(name))


def _head(file: File, name: str, source: str, notes: Sequence[str]) -> str:
    """Return the docstring and the imports."""
    used = "".join(helpers.TEXTS[word] for word in file.helpers)
    lines = [f'"""{name}: the model of {comment(source)}, written by rnnconvert.', ""]
    lines += [*(f"{comment(note)}." for note in dict.fromkeys(notes)), ""] if notes else []
    lines += [
        "load fills it from that file; with weights that torch.save kept, it needs torch alone.",
        '"""',
        "",
        "import sys",
        "",
        "import torch",
    ]
    lines += ["import torch.nn.functional as F"] if file.functions or "F." in used else []
    lines += ["from torch import nn"]
    lines += (
        ["from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence"] if "pack_padded" in used else []
    )
    return "\n".join([*lines, ""])


def _zeros(value: Value) -> str:
    """Return zeros for an input, with sizes for its open axes."""
    sizes = [str(size or (16 if axis else 2)) for axis, size in enumerate(value.shape)]
    return f"torch.zeros({', '.join(sizes)}{'' if value.dtype == 'float32' else f', dtype=torch.{value.dtype}'})"


def submodules(module: Module, prefix: str = "") -> dict[str, str]:
    """Return the submodules other than models, as state_dict calls them, and the layers that they are, by their paths."""
    found: dict[str, str] = {}
    for node in module.scope.nodes:
        if node.layer not in module.parts:
            continue
        part = prefix + module.parts[node.layer][0]
        if node.kind == "model":
            found |= submodules(module.file.modules[id(node["scope"])], f"{part}.")
        else:
            found[part] = f"{module.scope.path}/{node.layer}".lstrip("/")
    return found


_LOAD = '''def load(path{more}):
    """Return the model with the weights of the file that it was written from{others}."""
    from rnnconvert import load_into

    model = {model}().eval()
    load_into(model, path{layers}, accept=["all"], flatten="same"{options})
    return model
'''
_MAIN = '''def main():
    """Run the model on zeros, with the weights of a file if one is named."""
    model = load({words}) if len(sys.argv) > 1 else {model}().eval()
    with torch.no_grad():
        outputs = model({zeros})
    for output in outputs if isinstance(outputs, tuple) else [outputs]:
        print(tuple(output.shape))


if __name__ == "__main__":
    main()
'''
