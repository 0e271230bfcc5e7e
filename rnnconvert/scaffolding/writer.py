"""The text of a written file: names, lines, submodules, and what all targets share; a target adds its classes and its rules."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

from rnnconvert.core.errors import RefusedError
from rnnconvert.core.remedies import Command
from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.description import Check, DescribedModel, Node, Shape, Value
from rnnconvert.scaffolding.names import RESERVED, Names, comment, identifier
from rnnconvert.scaffolding.spelling import axes

Rule = Callable[[Any, Node[Any]], str]
"""Returns the expression that a node is for a Module, or "" where it wrote its lines itself."""
Loop = Callable[[str, Any, set[str]], str]
"""Returns the class of a cell, by its name and what it is asked for."""
_PLAIN_INPUT = re.compile(r"input.*|.*_tensor")
"""The names of inputs that nobody named."""
_MOVING = (
    kinds.Transpose, kinds.Squeeze, kinds.Unsqueeze, kinds.MergeAxes, kinds.SplitAxis, kinds.Flip, kinds.View, kinds.ReshapeAll,
    kinds.Select, kinds.Slice,
)  # fmt: skip
_TAKING = (kinds.Dense, *_MOVING)
"""What is written behind an expression as behind a variable."""
_CALLED = ("sqrt", "exp", "log", "abs", "erf", "sin", "cos", "floor", "round", "sign")
"""Functions of one tensor that are calls."""
_WIDEST = 60
"""The longest expression that another is written around."""


@dataclass
class File:
    """A file being written.

    names     the names at the top of the file
    classes   the names of the classes or functions of models, by scope
    modules   the models, by scope
    loops     the cells that the framework lacks, by the names of their classes; their required abilities: "both ways", "masked"; and the
              function that makes the class
    helpers   the functions and classes that stand before them
    imports   the lines that import anything other than the framework itself
    words     the names of open axes, by their labels in Value.axes
    partial   whether layers that cannot be written are left out
    missing   the layers that are left out, and why
    checks    the conditions on its inputs that the outermost model checks
    extras    the classes that stand for layers that are left out, in a framework that needs them
    """

    names: Names
    classes: dict[int, str] = field(default_factory=dict)
    modules: dict[int, Module] = field(default_factory=dict)
    loops: dict[str, tuple[Any, set[str], Loop]] = field(default_factory=dict)
    helpers: list[str] = field(default_factory=list)
    imports: set[str] = field(default_factory=set)
    words: Mapping[str, str] = field(default_factory=dict)
    partial: bool = False
    missing: list[str] = field(default_factory=list)
    extras: list[str] = field(default_factory=list)
    checks: tuple[Check, ...] = ()

    def helper(self, name: str) -> str:
        """Return a helper's name, and see that it stands in the file."""
        if name not in self.helpers:
            self.helpers.append(name)
        return name


class Module:
    """One model of the source, as a class or a function.

    TITLE       the framework, for refusals
    ATTRIBUTES  the names that a layer cannot have
    VARIABLES   the names that a variable cannot have
    SEPARATOR   what stands between the names of a module and of a module in it
    FORGETTING  the line that forgets the states {of} an attribute
    BASE, MAKING, CALLED  of a class: what it is made from, the first lines that make it, and its method that is called

    `read_ever` has the identities of the tensors that a node reads or the model gives.
    `within` says where in a layer's submodule its weights are, by layer; `inside` which submodules of it are layers of the source.
    """

    TITLE: ClassVar[str]
    ATTRIBUTES: ClassVar[frozenset[str]]
    VARIABLES: ClassVar[frozenset[str]]
    SEPARATOR: ClassVar[str] = "."
    FORGETTING: ClassVar[str] = "{of} = None"
    BASE: ClassVar[str]
    MAKING: ClassVar[tuple[str, ...]]
    CALLED: ClassVar[str]

    def __init__(self, file: File, scope: DescribedModel) -> None:
        self.file, self.scope = file, scope
        self.parts: dict[str, tuple[str, str]] = {}
        self.states: dict[str, str] = {}
        self.lines: list[str] = []
        self._attributes = Names(self.ATTRIBUTES)
        self._attribute: dict[str, str] = {}
        self._names = Names({"self", "ahead", "back", "h", "c", *self.VARIABLES})
        self._variables: dict[int, str] = {}
        self._uses: dict[int, int] = {}
        self._pending: dict[int, str] = {}
        self._joined: dict[int, Node[kinds.Kind]] = {}
        self.within: dict[str, str] = {}
        self.inside: dict[str, dict[str, str]] = {}
        for value in (*(value for node in scope.nodes for value in node.reads()), *scope.outputs):
            self._uses[id(value)] = self._uses.get(id(value), 0) + 1
        self.read_ever = frozenset(self._uses)
        self.arguments = [self._let(value, self._wanted(value)) for value in scope.inputs]

    def _wanted(self, value: Value) -> str:
        stem = "mask" if value.dtype == "bool" and value.name.startswith("mask") else identifier(value.name, "x")
        stem = "x" if stem == "x_" else stem
        single = len(self.scope.inputs) == 1
        return "x" if single and _PLAIN_INPUT.fullmatch(stem.rstrip("_0123456789")) else stem

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
                "one layer called in two ways", self.TITLE, f"it would be {self.parts[layer][1]} and {constructor}", "", layer
            )
        return f"self.{name}"

    def state(self, layer: str, start: str = "None") -> str:
        """Return the attribute in which a stateful layer keeps its states, which start as an expression says."""
        name = f"{self._attribute[layer]}_state"
        self.states[name] = start
        return f"self.{name}"

    def helper(self, name: str) -> str:
        """Return a helper's name, and see that it stands in the file."""
        return self.file.helper(name)

    def refused(self, node: Node[kinds.Kind], feature: str, reason: str, remedy: str = "") -> RefusedError:
        """Return the refusal of a layer."""
        return RefusedError(feature, self.TITLE, reason, remedy, node.layer)

    def new(self, value: Value, wanted: str = "") -> str:
        """Return a variable for a tensor: x if that is free, so that a chain of layers reads as one."""
        chain = "x" not in self._names.names and not wanted and value.dtype != "bool"
        stem = identifier(value.name.rstrip("_0123456789") or "x").rstrip("_") or "x"
        return self._let(value, "x" if chain else wanted or ("x" if stem in RESERVED else stem))

    def free(self, value: Value) -> None:
        """Let the variable of a tensor be taken again."""
        self._names.free(self._variables[id(value)])

    def used(self, value: Value) -> bool:
        """Return whether anything reads a tensor."""
        return bool(self._uses.get(id(value)))

    def line(self, text: str, shape: Shape | None = None) -> None:
        """Add a line of code, with the axes of what it computes."""
        self.lines.append(text + (f"  # {axes(shape)}" if shape is not None else ""))

    def axes(self, value: Value) -> str:
        """Return the axes of a tensor, as a comment, by the source's words where it has any."""
        if not value.sized:
            return "(?)"
        return axes(value.shape, [self.file.words.get(word, "") for word in value.axes])

    # The nodes

    def write(self, rules: Mapping[type[kinds.Kind], Rule]) -> None:
        """Write every node. Raises RefusedError for a kind without a rule, unless it may be left out."""
        nodes = self.scope.nodes
        for number, node in enumerate(nodes):
            if id(node) in self._joined:
                continue
            self._released = False
            self.position = number
            try:
                text = self._text(rules, node)
            except RefusedError as error:
                if not self.file.partial:
                    raise
                self._leave_out(node, error)
                continue
            self.release(node)
            if not text:
                continue
            end = ([node] + [other for other in nodes[number + 1 :] if self._joined.get(id(other)) is node])[-1]
            following = next((n for n in nodes[number + 1 :] if id(n) not in self._joined), None)
            inline = following is not None and self.takes(following) and following.inputs == end.outputs
            if inline and following is not None and isinstance(following.kind, _TAKING):  # one step more a line, where it stays short
                inline = (
                    (isinstance(following.kind, kinds.Dense) or isinstance(end.kind, _MOVING)) and _is_primary(end) and len(text) < _WIDEST
                )
            if inline and self._uses.get(id(end.y)) == 1 and "\n" not in text:
                self._pending[id(end.y)] = text
                continue
            self.line(f"{self.new(end.y)} = {text}  # {self.axes(end.y)}")

    def _text(self, rules: Mapping[type[kinds.Kind], Rule], node: Node[kinds.Kind]) -> str:
        """Return the line of a node. Raises RefusedError for a node that the target has no line for."""
        if isinstance(node.kind, kinds.LeftOut):
            raise node.kind.error
        if any(not value.sized for value in node.reads()):
            raise self.refused(node, "a tensor of unknown shape", "it is what a layer gives that is left out")
        rule = rules.get(type(node.kind))
        if rule is None:
            raise self.refused(node, f"a layer of kind {node.kind.word!r}", f"no line of {self.TITLE} is known for it")
        if isinstance(node.kind, kinds.Recurrent) and node.kind.rare:
            remedy = f"Write the model as a file: {Command('export', 'MODEL', 'TARGET')}."
            raise self.refused(node, f"a cell with {' and '.join(node.kind.rare)}", "the layers of most frameworks have none", remedy)
        return rule(self, node)

    def loop(self, node: Node[kinds.Loop], rules: Mapping[type[kinds.Kind], Rule], stack: str) -> None:
        """Write the lines of a loop over the steps of sequences, whose states are variables and whose steps fill lists.

        stack  a list of tensors {} as one, on a new first axis
        """
        scope, states, around, number = node.kind.scope, node.kind.states, self.scope, self.position
        count = states + node.kind.sequences
        words = [self(value) for value in node.inputs]
        for value in (*(value for inner in scope.nodes for value in inner.reads()), *scope.outputs):
            self._uses[id(value)] = self._uses.get(id(value), 0) + 1
        carried = [self._let(value, _of_a_step(value)) for value in scope.inputs[:states]]
        elements = [self._let(value, _of_a_step(value)) if self.used(value) else "_" for value in scope.inputs[states:count]]
        for value, word in zip(scope.inputs[count:], words[count:], strict=True):
            self._variables[id(value)] = word
            self._uses[id(value)] = self._uses.get(id(value), 0) + 1  # which every step reads again
        lists = [self._names.new("steps") if self.used(value) else "" for value in node.outputs[states:]]
        if carried:
            self.line(f"{', '.join(carried)} = {', '.join(words[:states])}")
        self.lines += [f"{name} = []" for name in lists if name]
        each = words[states] if count - states == 1 else f"zip({', '.join(words[states:count])})"
        self.line(f"for {', '.join(elements)} in {each}:")
        outside, self.lines, self.scope = self.lines, [], scope
        self.write(rules)
        after = [self(value) for value in scope.outputs]
        self.lines += [f"{name}.append({word})" for name, word in zip(lists, after[states:], strict=True) if name]
        changed = [(name, word) for name, word in zip(carried, after, strict=False) if name != word]
        if changed:
            self.line(f"{', '.join(name for name, _ in changed)} = {', '.join(word for _, word in changed)}")
        self.lines = [*outside, *(f"    {line}" for line in self.lines)]
        self.scope, self.position, self._released = around, number, False
        for value in scope.outputs:
            self._read(value)
        self.release(node)
        for value, name in zip(node.outputs, (*carried, *lists), strict=True):
            if self.used(value):
                self._variables[id(value)] = name
                self._names.names.add(name)
            else:
                self._names.free(name)
        self.lines += [
            f"{name} = {stack.format(name)}  # {self.axes(value)}" for name, value in zip(lists, node.outputs[states:], strict=True) if name
        ]

    def _leave_out(self, node: Node[kinds.Kind], error: RefusedError) -> None:
        """Write the stand-in for a node that cannot be written."""
        layer = self.scope.inside(error.layer.rpartition("/")[2] or node.label)
        layer = error.layer if error.layer and not node.layer else layer  # an operator's place in the file is stated whole
        why = comment(f"layer {layer!r}: {error.feature}: {error.reason}")
        self.file.missing.append(why)
        operands = [self(value) for value in node.inputs]
        self.release(node)
        self.unwritten(node, why, operands)

    def unwritten(self, node: Node[kinds.Kind], why: str, operands: Sequence[str]) -> None:
        """Write the lines of a node that is left out, which raise NotImplementedError."""
        names = ", ".join(self.new(value) for value in node.outputs)
        shapes = ", ".join(map(self.axes, node.outputs))
        self.line(f'raise NotImplementedError("{why}")')
        self.line(f"{names} = ...  # {shapes}, from {', '.join(operands) or 'nothing'}")

    def takes(self, node: Node[kinds.Kind]) -> bool:
        """Return whether a node's line takes an expression in place of a variable: one that names it once, in a call."""
        if isinstance(node.kind, kinds.Elementwise):
            return len(node.kind.operands) == 1 and node.kind.operation in _CALLED
        return isinstance(node.kind, _TAKING) or (isinstance(node.kind, kinds.Activation) and node.kind.name != "bounded_relu")

    def joins(self, node: Node[kinds.Kind]) -> Node[kinds.Activation] | None:
        """Return the next node, where it is a function and alone reads this one: the line of this one does its work, too."""
        nodes = self.scope.nodes
        following = nodes[self.position + 1] if self.position + 1 < len(nodes) else None
        if (
            following is None
            or not isinstance(following.kind, kinds.Activation)
            or following.inputs != (node.y,)
            or self._uses.get(id(node.y)) != 1
        ):
            return None
        return cast("Node[kinds.Activation]", following)

    def join(self, node: Node[kinds.Kind], following: Node[kinds.Kind]) -> None:
        """Let a node's line do the work of the one behind it."""
        self._joined[id(following)] = node

    def release(self, node: Node[kinds.Kind]) -> None:
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

    def stem(self, node: Node[kinds.Kind]) -> str:
        """Return the name of a node's submodule."""
        return self._attribute[node.layer]

    def _read(self, value: Value) -> None:
        self._uses[id(value)] -= 1
        self._pending.pop(id(value), None)
        if not self._uses[id(value)] and id(value) in self._variables:
            self._names.free(self._variables[id(value)])

    def text(self, name: str, first: bool) -> str:
        """Return the class, or of frameworks that have none the function; `first` is the outermost model."""
        making = [f"    self.{part} = {constructor}" for part, constructor in self.parts.values()]
        making = [*self.MAKING, *making] if making or len(self.MAKING) > 1 else [*self.MAKING, "    pass"]
        making += [f"    self.{state} = {start}  # kept from one call to the next" for state, start in self.states.items()]
        called = [*self.checking(first), *self.lines, f"return {', '.join(map(self, self.scope.outputs))}"]
        lines = [*making, "", f"def {self.CALLED}(self, {', '.join(self.arguments)}):", *(f"    {line}" for line in called)]
        head = [f"class {name}({self.BASE}):", f'    """{self.title(first)}"""', ""]
        return "\n".join([*head, *(f"    {line}" if line else "" for line in lines), *self.forgetting()]) + "\n"

    def title(self, first: bool) -> str:
        """Return the model's inputs and outputs, as a sentence."""
        inputs = [
            f"{argument} {self.axes(value)}" + ("" if value.dtype == "float32" else f", {value.dtype}")
            for argument, value in zip(self.arguments, self.scope.inputs, strict=True)
        ]
        title = "The whole model" if first else f"The model {comment(self.scope.name)!r} in the model"
        return f"{title}: {', '.join(inputs)} to {', '.join(map(self.axes, self.scope.outputs))}."

    def checking(self, first: bool) -> list[str]:
        """Return the lines that raise ValueError for inputs of lengths that the source does not take, [] in a model in the model."""
        return [line for check in self.file.checks if first for line in check.raising(self.arguments)]

    def forgetting(self) -> list[str]:
        """Return the lines of a method that forgets the states of the last call, [] where there are none."""
        lines = [self.FORGETTING.format(of=f"self.{state}") for state in self.states]
        lines += [f"self.{part}.reset_states()" for part in self._keeping()]
        head = ["", "    def reset_states(self):", '        """Begin anew: forget the states of the last call."""']
        return [*head, *(f"        {line}" for line in lines)] if lines else []

    def _keeping(self) -> list[str]:
        """Return the submodules that are models with states to forget."""
        models = {node.layer: self.file.modules[id(node.kind.scope)] for node in self.scope.nodes if isinstance(node.kind, kinds.Model)}
        return [self._attribute[layer] for layer, inner in models.items() if inner.states or inner._keeping()]

    _released = False
    number = 0


def _of_a_step(value: Value) -> str:
    """Return the name of a variable of a loop's steps: h_t for h."""
    name = identifier(value.name.rstrip("_0123456789") or "x").rstrip("_") or "x"
    return name if len(name) > 1 else f"{name}_t"


def _is_primary(node: Node[kinds.Kind]) -> bool:
    """Return whether a node's line is a call or an index, so that a method may be called on it without brackets."""
    signs = (
        kinds.Arithmetic, kinds.Elementwise, kinds.Matmul, kinds.Rescale, kinds.Mask, kinds.Dot, kinds.Pool,
    )  # fmt: skip
    return not isinstance(node.kind, signs)
