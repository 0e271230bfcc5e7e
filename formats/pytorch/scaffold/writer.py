"""The text of a torch.nn.Module from a description: names, lines, classes, and the helpers that they need."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rnnconvert.core.errors import RefusedError
from rnnconvert.formats.pytorch.scaffold import helpers
from rnnconvert.scaffold.description import Description, Node, Scope, Shape, Value
from rnnconvert.scaffold.names import Names, class_name, comment, identifier

Rule = Callable[["Module", Node], str]
"""Returns the expression that a node is, or "" where it wrote its lines itself."""
_PLAIN_INPUTS = ("input", "keras_tensor", "input_layer", "inputs")


@dataclass
class File:
    """A file being written.

    classes   the names of the classes of models, by scope
    helpers   the functions and classes that stand before them
    texts     the texts of helpers, by name
    functions whether torch.nn.functional is needed
    names     the names at the top of the file
    """

    classes: dict[int, str] = field(default_factory=dict)
    helpers: list[str] = field(default_factory=list)
    functions: bool = False
    texts: dict[str, str] = field(default_factory=lambda: dict(helpers.TEXTS))
    names: Names = field(default_factory=lambda: Names({"torch", "nn", "sys", "F", "LAYERS", "load", "main", *helpers.TEXTS}))
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
        self._attributes = Names({"forward", "training", "reset_states", "eval", "train", "load_state_dict", "state_dict", "float", "double", "type", "to"})
        self._attribute: dict[str, str] = {}
        self._names = Names({"torch", "nn", "F", "self", "ahead", "back", "h", "c", *helpers.TEXTS})
        self._variables: dict[int, str] = {}
        self._uses: dict[int, int] = {}
        self._pending: dict[int, str] = {}
        for value in (*(value for node in scope.nodes for value in node.reads()), *scope.outputs):
            self._uses[id(value)] = self._uses.get(id(value), 0) + 1
        self.arguments = [self._let(value, self._wanted(value)) for value in scope.inputs]

    def _wanted(self, value: Value) -> str:
        stem = identifier(value.name, "x")
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
            raise RefusedError("one layer called in two ways", "PyTorch", f"it would be {self.parts[layer][1]} and {constructor}", "", layer)
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
        chain = "x" not in self._names.taken and not wanted and value.dtype != "bool"
        return self._let(value, "x" if chain else wanted or identifier(value.name.rstrip("_0123456789") or "x"))

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
                raise RefusedError(f"a layer of kind {node.kind!r}", "PyTorch", "no line of PyTorch is known for it", "", node.layer)
            self._released = False
            text = rule(self, node)
            following = nodes[number + 1] if number + 1 < len(nodes) else None
            self.release(node)
            if not text:
                continue
            inline = following is not None and following.kind == "activation" and following.inputs == node.outputs
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
        inputs = [f"{argument} {axes(value.shape)}" + (f", {value.dtype}" if value.dtype != "float32" else "")
                  for argument, value in zip(self.arguments, self.scope.inputs, strict=True)]  # fmt: skip
        outputs = [axes(value.shape) for value in self.scope.outputs]
        lines = [f"class {name}(nn.Module):"]
        title = "The whole model" if first else f"The model {comment(self.scope.name)!r} in the model"
        lines += [f'    """{title}: {", ".join(inputs)} to {", ".join(outputs)}."""', ""]
        lines += ["    def __init__(self):", "        super().__init__()"]
        lines += [f"        self.{part} = {made}" for part, made in self.parts.values()]
        lines += [f"        self.{state} = None  # kept from one call to the next" for state in self.states]
        lines += ["", f"    def forward(self, {', '.join(self.arguments)}):"]
        lines += [f"        {line}" for line in self.lines]
        lines += [f"        return {', '.join(self(value) for value in self.scope.outputs)}"]
        inner = [part for part, made in self.parts.values() if made.removesuffix("()") in self.file.classes.values()]
        resets = [f"self.{part}.reset_states()" for part in inner if any(m.keeps for m in self.file.modules.values() if f"{self.file.classes[id(m.scope)]}()" in
                                                                          [made for p, made in self.parts.values() if p == part])]  # fmt: skip
        if self.states or resets:
            lines += ["", "    def reset_states(self):", '        """Begin anew: forget the states of the last call."""']
            lines += [f"        self.{state} = None" for state in self.states] + [f"        {reset}" for reset in resets]
        self.keeps = bool(self.states or resets)
        return "\n".join(lines) + "\n"

    keeps = False
    _released = False


def axes(shape: Sequence[int | None]) -> str:
    """Return the axes of a tensor, as a comment."""
    words = ["batch" if not n and size is None else "time" if n == 1 and size is None and len(shape) > 1 else "n" if size is None else str(size)
             for n, size in enumerate(shape)]  # fmt: skip
    return f"({', '.join(words)}{',' if len(words) == 1 else ''})"


def text(description: Description, source: str) -> str:
    """Return the file. Raises RefusedError for a layer without an equivalent."""
    from rnnconvert.formats.pytorch.scaffold.layers import RULES

    file = File()
    top = description.scope
    top_name = class_name(top.name)
    top_name = file.names.new("Model" if top_name in ("Sequential", "Functional", "Model") or top_name.startswith(("Functional", "Sequential")) else top_name)
    bodies = []
    for scope in (*top.inner(), top):
        name = top_name if scope is top else file.names.new(class_name(scope.name))
        file.classes[id(scope)] = name
        file.modules[id(scope)] = module = Module(file, scope)
        module.write(RULES)
        bodies.append(module.text(name, scope is top))
    paths = submodules(file.modules[id(top)])
    layers = {part: description.names[path][0] for part, path in paths.items() if path in description.names}
    head = ['"""' + f"{top_name}: the model of {comment(source)}, written by rnnconvert.", "",
            *(f"{comment(note)}." for note in dict.fromkeys(description.notes)), *([""] if description.notes else []),
            "load fills it from that file. Once its weights are kept by torch.save(model.state_dict(), ...), it needs torch alone.", '"""', ""]  # fmt: skip
    imports = ["import sys", "", "import torch", *(["import torch.nn.functional as F"] if file.functions or any("F." in file.texts[n] for n in file.helpers) else []),
               "from torch import nn"]  # fmt: skip
    if any("pack_padded_sequence" in file.texts[name] for name in file.helpers):
        imports.append("from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence")
    parts = ["\n".join([*head, *imports, ""])]
    if layers:
        rows = [f"    {json.dumps(ours)}: {json.dumps(theirs)}," for ours, theirs in layers.items()]
        parts.append("\n".join(["", "LAYERS = {", *rows, "}", '"""Its layers, and what fills them in the file."""', ""]))
    parts += ["\n" + file.texts[name] for name in file.helpers]
    parts += ["\n" + body for body in bodies]
    zeros = [f"torch.zeros({', '.join(str(size or (2 if not n else 5)) for n, size in enumerate(value.shape))}{_dtype(value)})" for value in top.inputs]
    parts.append("\n" + _LOAD.format(model=top_name, layers=", LAYERS" if layers else ""))
    parts.append("\n" + _MAIN.format(model=top_name, zeros=", ".join(zeros)))
    return "\n".join(parts)


def _dtype(value: Value) -> str:
    return "" if value.dtype == "float32" else f", dtype=torch.{value.dtype}"


def submodules(module: Module, prefix: str = "") -> dict[str, str]:
    """Return the submodules that are no models, as state_dict calls them, and the layers that they are, by their paths."""
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


_LOAD = '''def load(path):
    """Return the model with the weights of the file that it was written from."""
    from rnnconvert import load_into

    model = {model}().eval()
    load_into(model, path{layers}, accept=["all"], flatten="same")
    return model
'''
_MAIN = '''def main():
    """Run the model on zeros, with the weights of a file if one is named."""
    model = load(sys.argv[1]) if len(sys.argv) > 1 else {model}().eval()
    with torch.no_grad():
        outputs = model({zeros})
    for output in outputs if isinstance(outputs, tuple) else [outputs]:
        print(tuple(output.shape))


if __name__ == "__main__":
    main()
'''
