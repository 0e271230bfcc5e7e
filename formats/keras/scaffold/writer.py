"""The text of a Keras 3 model: a function that builds it, Sequential where it is one line of layers, else functional."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rnnconvert.core.errors import RefusedError
from rnnconvert.formats.keras.scaffold.configured import KerasLayer
from rnnconvert.formats.keras.scaffold.layers import RULES
from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.description import RANK, DescribedModel, Node, Value
from rnnconvert.scaffolding.names import class_name, identifier
from rnnconvert.scaffolding.text import Style
from rnnconvert.scaffolding.writer import File, Module


class KerasModule(Module):
    """One function: a model of the source."""

    TITLE = "Keras"
    ATTRIBUTES = frozenset(
        [
            "flatten",
            "dropout",
            "activation",
            "reshape",
            "permute",
            "add",
            "multiply",
            "subtract",
            "concatenate",
            "average",
            "dot",
            "rescaling",
        ]
    )
    VARIABLES = frozenset({"keras", "layers", "ops"})
    SEPARATOR = "/"

    def __init__(self, file: File, scope: DescribedModel) -> None:
        if not scope.inputs:
            raise RefusedError(f"the model {scope.name!r} without an input", self.TITLE, "a functional model begins with one")
        super().__init__(file, scope)
        self._calls: dict[str, list[Node[kinds.Kind]]] = {}
        for node in scope.nodes:
            if node.layer:
                self._calls.setdefault(node.layer, []).append(node)
        for value in scope.inputs:  # the last line reads them all
            self._uses[id(value)] = self._uses.get(id(value), 0) + 1
        self._shared: dict[str, str] = {}
        self._line: list[str] = []  # the layers, as long as each reads what the one before it gives

    def called(self, constructor: KerasLayer | str, x: Value, *arguments: str, layer: str = "") -> str:
        """Return the call of a layer on a tensor.

        constructor  the layer, or its constructor in code
        arguments  further arguments of the call
        layer  the layer that it is, "" for one without weights
        """
        made_by = self.named(layer, str(constructor)) if layer else str(constructor)
        words = ", ".join(word for word in (self(x), *arguments) if word)
        if not any(arguments) and made_by.endswith(")"):
            self._line.append(made_by)
        return f"{made_by}({words})"

    def merged(self, constructor: KerasLayer, values: Sequence[Value]) -> str:
        """Return the call of a layer on several tensors."""
        return f"{constructor}([{', '.join(self(value) for value in values)}])"

    def named(self, layer: str, constructor: str) -> str:
        """Return a layer with its name; one that is called several times stands in front of the lines, as a variable."""
        self.part(layer, constructor)
        name = self._attribute[layer]
        constructor = f'{constructor[:-1]}{"" if constructor.endswith("(") or constructor[-2] == "(" else ", "}name="{name}")'
        if not self.shared(layer):
            return constructor
        if layer not in self._shared:
            self._shared[layer] = self._names.new(name)
            self.lines.insert(0, f"{self._shared[layer]} = {constructor}")
        return self._shared[layer]

    def shared(self, layer: str) -> bool:
        """Return whether a layer is called several times: with other functions behind it each time."""
        return len(self._calls.get(layer, ())) > 1

    def model(self, node: Node[kinds.Model]) -> str:
        """Return the variable of a model in the model."""
        build = self.file.classes[id(node.kind.scope)]
        self.part(node.layer, build)
        if node.layer not in self._shared:
            name = self._shared[node.layer] = self._names.new(self._attribute[node.layer])
            self.lines.insert(0, f'{name} = {build}(name="{self._attribute[node.layer]}")')
        return self._shared[node.layer]

    def unwritten(self, node: Node[kinds.Kind], why: str, operands: Sequence[str]) -> None:
        """Write a layer of a class that is left to be written: the model can be built and filled around it."""
        if any(not value.sized for value in node.outputs):
            reason = "the file states no shape of what it gives, and Keras builds no model without one"
            raise self.refused(node, f"a layer that is left out ({why})", reason)
        name = self.file.names.new(class_name(node.layer.rpartition("/")[2] or node.y.name))
        specs = [f"keras.KerasTensor({value.shape}, {value.dtype!r})".replace("'", '"') for value in node.outputs]
        specs = specs if len(specs) == 1 else [f"[{', '.join(specs)}]"]
        self.file.extras.append(_UNWRITTEN.format(name=name, why=why, spec=specs[0]))
        names = ", ".join(self.new(value) for value in node.outputs)
        shapes = ", ".join(self.axes(value) for value in node.outputs)
        self.line(f"{names} = {name}()({', '.join(operands)})  # {shapes}")

    def takes(self, node: Node[kinds.Kind]) -> bool:
        """Return whether a node's line takes an expression: layers read variables, so that each has a line."""
        return isinstance(node.kind, kinds.Activation | kinds.Elementwise) and super().takes(node)

    def used_by(self, layer: str, place: int) -> bool:
        """Return whether an output of a layer is read in one of its calls."""
        return any(self.used(node.outputs[place]) or self.read_later(node.outputs[place]) for node in self._calls[layer])

    def read_later(self, value: Value) -> bool:
        """Return whether a node or the model's outputs read a tensor."""
        return id(value) in self.read_ever

    def _is_line(self) -> bool:
        """Return whether each node reads what the one before it gives, and nothing else of it is read."""
        if len(self.scope.inputs) != 1:
            return False
        (value,), others = self.scope.inputs, list[Value]()
        for node in self.scope.nodes:
            if others or node.reads() != (value,):
                return False
            value, *more = node.outputs
            others = [output for output in more if self.read_later(output)]
        return not others and self.scope.outputs == (value,)

    def text(self, name: str, first: bool) -> str:
        """Return the function."""
        checking = self._checking() if first else []
        default = "None" if first else f'"{identifier(self.scope.name)}"'
        lines = [f"def {name}(name={default}):", f'    """{self.title(first)}"""']
        starts = [
            f"{word} = {_input(value, self._attributes.new(identifier(value.name, 'x')))}"  # Keras wants one name for one thing
            for word, value in zip(self.arguments, self.scope.inputs, strict=True)
        ]
        outputs = [self(value) for value in self.scope.outputs]
        if len(self._line) == len(self.lines) == len(self.scope.nodes) - len(self._joined) and self._is_line() and not checking:
            shapes = [line.partition("  # ")[2] for line in self.lines]
            rows = [f"        {_input(self.scope.inputs[0], '')},"]
            rows += [f"        {call},  # {shape}" for call, shape in zip(self._line, shapes, strict=True)]
            return "\n".join([*lines, "    return keras.Sequential([", *rows, "    ], name=name)"]) + "\n"
        listed = [words[0] if len(words) == 1 else f"[{', '.join(words)}]" for words in (self.arguments, outputs)]
        if checking:  # which gives what it reads: the model's own inputs are those before it
            checking, listed[0] = [f"{_INPUTS} = [{', '.join(self.arguments)}]", *checking], _INPUTS
        lines += [f"    {line}" for line in (*starts, *checking, *self.lines)]
        return "\n".join([*lines, f"    return keras.Model({listed[0]}, {listed[1]}, name=name)"]) + "\n"

    def _checking(self) -> list[str]:
        """Return the line that checks lengths that keras.Input does not, [] where it checks all of them."""
        checks = [check for check in self.file.checks if not re.fullmatch(r"\{0\} == \d+", check.text) or not check.axes[0][1]]
        checks = [check for check in checks if check.axes[0][1] != RANK]  # which keras.Input has
        if not checks:
            return []
        name, words = self.file.names.new("CheckedLengths"), ", ".join(self.arguments)
        lines = []
        for check in checks:
            lengths, _ = check.spelled(self.arguments)
            lines += check.raising(self.arguments, f"None not in ({', '.join(lengths)},) and ")
        self.file.extras.append(_CHECKED.format(name=name, inputs=words, lines="\n".join(f"        {line}" for line in lines)))
        return [f"{words}, = {name}()({_INPUTS})"]


_INPUTS = "model_inputs"

_CHECKED = '''class {name}(layers.Layer):
    """Raise ValueError for inputs of lengths that the source does not take; one that is open while Keras traces is not checked."""

    def call(self, inputs):
        {inputs}, = inputs
{lines}
        return inputs
'''


_UNWRITTEN = '''class {name}(layers.Layer):
    """To be written."""

    def call(self, *inputs):
        raise NotImplementedError("{why}")

    def compute_output_spec(self, *inputs):
        return {spec}
'''


def _input(value: Value, name: str) -> str:
    """Return an input of the model."""
    shape = f"{value.shape[1:]}" if value.shape[:1] == (None,) else f"batch_shape={value.shape}"
    dtype = "" if value.dtype == "float32" else f', dtype="{value.dtype}"'
    return f"keras.Input({shape}{dtype}{f', name={name!r}'.replace(chr(39), chr(34)) if name else ''})"


def _imports(file: File, body: str) -> list[str]:
    words = [word for word in ("layers", "ops") if re.search(rf"(?<![\w.]){word}\.", body)]
    return ["import keras", *([f"from keras import {', '.join(words)}"] if words else [])]


def _build(word: str) -> str:
    return f"build_{identifier(word)}"


_RESTORES = {"": "model.load_weights(path)"}
_PARAMETER = '''@keras.saving.register_keras_serializable("rnnconvert")
class Parameter(layers.Layer):
    """An array of the model, learned unless it has whole numbers; what it is called on only says which model it is in."""

    def __init__(self, shape, numbers="float32", **more):
        super().__init__(**more)
        self.shape, self.numbers = tuple(shape), numbers
        learned = numbers.startswith("float")
        self.value = self.add_weight(name="value", shape=self.shape, dtype=numbers, initializer="zeros", trainable=learned)

    def call(self, x):
        return ops.convert_to_tensor(self.value)

    def get_config(self):
        return {**super().get_config(), "shape": self.shape, "numbers": self.numbers}
'''

STYLE = Style(
    KerasModule,
    RULES,
    {"Parameter": _PARAMETER},
    frozenset({"keras", "layers", "ops"}),
    _build,
    _imports,
    "{model}()",
    _RESTORES,
    "outputs = model([{zeros}])",
    lambda sizes, dtype: f"keras.ops.zeros(({sizes})" + (")" if dtype == "float32" else f', dtype="{dtype}")'),
    "with weights that Keras saved, it needs Keras alone.",
    unlike=True,
    several="(list, tuple)",
)
