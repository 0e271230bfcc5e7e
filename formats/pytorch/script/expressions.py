"""Expressions of a TorchScript archive's code: what is known without a run is decided, every operator is noted.

Source: torch/csrc/jit/runtime/register_prim_ops.cpp for what works on numbers and lists.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rnnconvert.core.limits import STATEMENTS
from rnnconvert.formats.pytorch import aten
from rnnconvert.formats.pytorch.program.kinds import APART, BRANCH, CELLS, ITEM, JOINED, LIST, LOOP, RECURRENT, UNBOUND
from rnnconvert.formats.pytorch.program.operators import operator
from rnnconvert.formats.pytorch.program.program import ElementTypeOf, OperatorProgram, Ref, Several, TooLongError, refs
from rnnconvert.formats.pytorch.script import quantized
from rnnconvert.formats.pytorch.script.code_expressions import Expression
from rnnconvert.formats.pytorch.script.text import Class, ScriptFunction
from rnnconvert.formats.pytorch.script.values import (
    DTYPES,
    STATIC,
    ArchiveScope,
    Bound,
    Frame,
    Items,
    Name,
    OpenItems,
    RaisedError,
    ScriptedModule,
    static,
)

UNKNOWN = "what is not followed"
_OF_DEVICE: Mapping[str, object] = {"device": "cpu", "is_cuda": False}
"""Facts about every value of a program that is followed: it runs on a processor."""
_NUMBERS = frozenset({"size", LIST, "slice_list", "list", "list_add", "list_mul"})
"""Operators that give lists of numbers."""


_CHANGES = frozenset(
    {"append", "insert", "extend", "pop", "popitem", "clear", "reverse", "sort", "remove", "update", "setdefault", "Delete"}
)
"""Operators that change a list or a dictionary."""
_MOST_ITEMS = 1 << 12
"""The most items of a list that the caller hands in."""
_ON_LISTS = ("len", "slice", "list", "add")
GRAD_MODE = Name("a mode of gradients")
A_LOOP = "a loop"
A_BRANCH = "a branch that the code chooses when it runs"


@dataclass
class ListsOfLoop:
    """Lists from outside of a loop that its steps use.

    filled  the value that each step puts into one, and whether at its front and not at its end; None if unknown
    before  the content of these before the loop: a list, or the stand-in for one that an earlier loop filled
    read    the lists whose items or length are read
    """

    filled: dict[Items, tuple[Any, bool] | None] = field(default_factory=dict)
    before: dict[Items, Ref | Items] = field(default_factory=dict)
    read: set[Items] = field(default_factory=set)


class Expressions:
    """The values of expressions. The class that follows statements derives from it and follows calls of functions."""

    def __init__(self, archive: ArchiveScope) -> None:
        self.program = OperatorProgram()
        self.archive = archive
        self.left = STATEMENTS
        # The branches and loops around, each with how many functions are called there.
        self.within: list[tuple[str, int]] = []
        self.lists: list[ListsOfLoop] = []  # of the loops around whose steps are not known

    @property
    def level(self) -> int:
        """In how many branches and loops that are not decided here the code stands."""
        return len(self.within)

    def call(self, function: ScriptFunction, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        """Return the value that a function of the code returns."""
        raise NotImplementedError

    def spend(self, count: int = 1) -> None:
        """Count more statements or values. Raises TooLongError."""
        self.left -= count
        if self.left < 0:
            raise TooLongError(f"it has more than {STATEMENTS} statements")

    def argument(self, value: Any) -> Any:
        """Return a value as an operator reads it."""
        if isinstance(value, Items):
            self._note_read(value)
            if value.steps is not None:
                return value.steps
            self.spend(1 + len(value.values) // 8)
            items = [self.argument(item) for item in value.values]
            return items if value.complete else [*items, "more items"]
        if isinstance(value, dict):
            return [self.argument(item) for item in value.values()]
        if isinstance(value, OpenItems):
            return self.unknown([*value.items.values()], "a list or dictionary of inputs as a whole")
        return None if isinstance(value, ScriptedModule | Name | Bound) else value

    def _is_static(self, value: Any) -> bool:
        if isinstance(value, Items):
            self.spend()
            return value.complete and len(value.values) < 1 << 8 and all(map(self._is_static, value.values))
        return value is None or (isinstance(value, bool | int | float | str) and not isinstance(value, ElementTypeOf))

    # Expressions -----------------------------------------------------------------------------------------

    def evaluate(self, expression: Expression, frame: Frame) -> Any:
        """Return the value of an expression."""
        kind = expression[0]
        if kind == "constant":
            return expression[1]
        if kind == "name":
            return frame.values[expression[1]] if expression[1] in frame.values else Name(expression[1])
        if kind in ("list", "tuple"):
            return Items([self.evaluate(element, frame) for element in expression[1]], self.level)
        if kind == "attribute":
            return self._attribute(self.evaluate(expression[1], frame), expression[2])
        if kind == "index":
            of = self.evaluate(expression[1], frame)
            places = [self.evaluate(element, frame) for element in expression[2]]
            if len(places) == 1:
                return self.item(of, places[0])
            if isinstance(of, Items) and of.complete and all(place is None or isinstance(place, int) for place in places):
                return Items(of.values[slice(*places)], self.level)
            return self.unknown([of, *places], "a part of a tuple")
        if kind == "dict":
            return {self.evaluate(key, frame): self.evaluate(value, frame) for key, value in expression[1] if key[0] == "constant"}
        return self._called(expression, frame)

    def _attribute(self, of: Any, name: str) -> Any:
        if isinstance(of, Name):
            if of.text == "CONSTANTS":
                return self.program.stored(f"CONSTANTS.{name}")
            return Name(f"{of.text}.{name}")
        if isinstance(of, ScriptedModule):
            kind = self.archive.module(of.path)
            if kind is not None and name in kind.methods:
                return Bound(of, kind.methods[name])
            try:
                return self.archive.attribute(self.program, of.path, name)
            except KeyError:
                return self.unknown([], f"the attribute {name}")
        if isinstance(of, Items) and name in of.names:
            return of.values[of.names.index(name)]
        return self.unknown([of], f"the attribute {name}")

    def _note_read(self, of: Any) -> None:
        """Note that a list is read in the loops around, which may fill it."""
        if isinstance(of, Items):
            for lists in self.lists:
                lists.read.add(of)

    def item(self, of: Any, index: Any) -> Any:
        """Return an item of a list, or of what an operator gives."""
        self._note_read(of)
        if isinstance(of, Items) and of.steps is not None and isinstance(index, Ref | int):
            return self._operator("select", [of.steps, 0, index], {})
        if isinstance(of, Items) and of.complete and isinstance(index, int) and -len(of.values) <= index < len(of.values):
            return of.values[index]
        if isinstance(of, OpenItems) and (isinstance(index, str) if of.by_key else isinstance(index, int) and 0 <= index < _MOST_ITEMS):
            return of.item(index, self.program.input)
        if isinstance(of, dict):
            return of[index] if isinstance(index, str | int) and index in of else self.unknown([*of.values()], "a dictionary")
        if isinstance(of, Several) and isinstance(index, int):
            count = of.operation.inputs[1] if of.operation.kind.endswith("chunk") else None
            if index < 0 and isinstance(count, int):
                index += count
            if 0 <= index < 1 << 12:
                return self.program.output(of.operation, index)
        if isinstance(of, Several) and isinstance(index, Ref) and of.steps is not None:
            base, axis, stays = of.steps
            step = self._operator("select", [base, axis, index], {})
            return self._operator("unsqueeze", [step, axis], {}) if stays else step
        if isinstance(of, Ref) and of.operation is not None and isinstance(index, int):
            if of.operation.kind in _NUMBERS:
                return self.output(ITEM, [of, index])
            if 0 <= index < 1 << 12 and of is of.operation.outputs.get(0) and of.operation.kind not in (BRANCH, LOOP):
                return self.program.output(of.operation, index)
        return self.unknown([of, index], "an item of a list")

    def _called(self, expression: Expression, frame: Frame) -> Any:
        name = expression[1]
        if name in (("name", "annotate"), ("name", "unchecked_cast")) and len(expression[2]) == 2:
            return self.evaluate(expression[2][1], frame)
        if name == ("name", "isinstance") and len(expression[2]) == 2:
            return self._is_a(self.evaluate(expression[2][0], frame), expression[2][1])
        if name == ("name", "uninitialized"):
            return self.unknown([], "what is not set")
        of = self.evaluate(name, frame)
        arguments = [self.evaluate(argument, frame) for argument in expression[2]]
        keywords = {key: self.evaluate(argument, frame) for key, argument in expression[3].items()}
        if isinstance(of, Bound):
            return self.call(of.function, [of.module, *arguments], keywords)
        if not isinstance(of, Name):
            return self.unknown([of, *arguments, *keywords.values()], "a call", changes=True)
        if of.text == "getattr" and len(arguments) == 2 and isinstance(arguments[1], str):
            return self._attribute(arguments[0], arguments[1])
        if of.text.startswith("__torch__."):
            return self._user_function(of.text, arguments, keywords)
        space, _, function = of.text.rpartition(".")
        if function.startswith(quantized.PREFIXES) and (call := quantized.of_floats(function, arguments)) is not None:
            space, (function, arguments) = "torch", call
            keywords = {word: value for word, value in keywords.items() if word not in quantized.OF_ROUNDING}
        if space in ("torch", "ops.aten", "ops.prim", ""):
            return self._operator(function, arguments, keywords)
        in_place = space != "ops.quantized" or function.endswith("_out")
        return self.unknown([*arguments, *keywords.values()], of.text.removeprefix("ops."), changes=in_place)

    def _is_a(self, value: Any, kind: Expression) -> Any:
        """Return whether a value is of a type."""
        if isinstance(value, Ref) and (value.operation is None or value.operation.kind in aten.TENSORS):
            return kind == ("name", "Tensor")
        if isinstance(value, Items) and not value.names:
            return kind[0] == "index" and kind[1] in (("name", "List"), ("name", "Tuple"))
        return self.unknown([value], "isinstance")

    def _user_function(self, name: str, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        """Return the value of a function of the archive, or an object of one of its classes of tuples."""
        if name.startswith("__torch__.torch.autograd.grad_mode.") and name.endswith(".__new__"):
            return GRAD_MODE
        definition = self.archive.function(name)
        if isinstance(definition, ScriptFunction):
            return self.call(definition, arguments, keywords)
        if isinstance(definition, Class) and definition.base == "NamedTuple" and len(definition.fields) == len(arguments):
            return Items([*arguments], self.level, definition.fields)
        return self.unknown([*arguments, *keywords.values()], name.rpartition(".")[2], changes=True)

    # Operators -------------------------------------------------------------------------------------------

    def _operator(self, name: str, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        if name == "RaiseException":
            raise RaisedError
        plain = name.strip("_") if name.startswith("__") else name
        values = [*arguments, *keywords.values()]
        if plain in ("is", "isnot") and len(arguments) == 2 and None in arguments:
            other = next((argument for argument in arguments if argument is not None), None)
            if not (isinstance(other, Ref) and other.operation is not None and other.operation.kind == UNKNOWN):
                return (other is None) == (plain == "is")
        if plain in STATIC and not keywords and all(map(self._is_static, values)):
            try:
                return STATIC[plain](*map(static, arguments))
            except (TypeError, ValueError, ArithmeticError, IndexError):
                return self.unknown(values, plain)
        if plain == "slice" and arguments and isinstance(arguments[0], Several) and arguments[0].operation.kind in APART:
            base, axis, *_ = [*arguments[0].operation.inputs, 0]
            arguments[0] = self._listed(self.output(UNBOUND, [base, axis]))
        on_list = bool(arguments) and isinstance(arguments[0], Items | dict)
        if plain == "_set_item" or (on_list and (plain in _CHANGES or plain in _ON_LISTS or plain.endswith("_"))):
            return self._on_list(plain, arguments)
        if plain in STATIC and any(isinstance(value, ElementTypeOf) for value in values):
            return self.unknown(values, plain)
        if plain == "dtype" and len(arguments) == 1:
            return ElementTypeOf.of(arguments[0])
        if plain == "device" and arguments and isinstance(arguments[0], str):
            return arguments[0]
        if plain in _OF_DEVICE:
            return _OF_DEVICE[plain]
        if plain in ("layout", "format", "warn", "requires_grad"):
            return f"the {plain} of a value"
        if plain in ("to", "_to_copy", "type", "type_as"):
            arguments = [DTYPES.get(argument, argument) if type(argument) is int else argument for argument in arguments]
        keywords = {key: DTYPES.get(word, word) if key == "dtype" and type(word) is int else word for key, word in keywords.items()}
        operands = [self.argument(argument) for argument in arguments]
        if plain == "index" and (place := _single_place(operands)) is not None:
            return self.output("unsqueeze", [self.output("select", [operands[0], 0, place]), 0])
        of_numbers = (
            bool(arguments)
            and isinstance(arguments[0], Ref)
            and arguments[0].operation is not None
            and (arguments[0].operation.kind in _NUMBERS)
        )
        if plain == "slice" and of_numbers:
            plain = "slice_list"
        if plain in ("add", "mul") and (of_numbers or isinstance(arguments[0], Items)):
            plain = f"list_{plain}"
        given_back = operator(self.program, plain, operands, {key: self.argument(keyword) for key, keyword in keywords.items()})
        if self.level and name in (*RECURRENT, *CELLS) and arguments and not (self.within[-1][0] == A_LOOP and name in CELLS):
            # It is no layer's run over a sequence, whatever it is called with.
            call = next(operation for operation in reversed(self.program.operations) if operation.kind == name)
            call.inputs[0] = self.unknown([arguments[0]], self.within[-1][0])
        return Items(given_back, self.level) if isinstance(given_back, list) else given_back

    def _on_list(self, name: str, arguments: Sequence[Any]) -> Any:
        """Do what an operator does with a list that is known, or note that it is known no longer."""
        of = arguments[0] if arguments else None
        if name in _ON_LISTS:
            self._note_read(of)
        if isinstance(of, Items) and of.attribute and name not in _ON_LISTS:
            self.program.changed[of.attribute] = None
        if name == "_set_item" and isinstance(of, dict) and isinstance(arguments[1], str | int) and self.level == 0:
            of[arguments[1]] = arguments[2]
            return None
        if not isinstance(of, Items):
            given_back = self.unknown(arguments, name)
            if isinstance(of, dict) and name not in _ON_LISTS:
                of |= dict.fromkeys(of, given_back)
            return given_back
        if name == "append" and of.complete and of.level == self.level:
            of.values.append(arguments[1])
        elif name in ("extend", "add_") and of.complete and of.level == self.level and self._is_complete(arguments[1]):
            self.spend(1 + len(arguments[1].values) // 8)
            of.values += arguments[1].values
        elif name in ("append", "reverse") and of.steps is not None and of.level == self.level:
            put = Items([*arguments[1:]], self.level)
            of.steps = self.joined(of.steps, put) if name == "append" else self.output("flip", [of.steps, Items([0])])
        elif name == "reverse" and of.complete and of.level == self.level:
            of.values.reverse()
        elif name == "len" and (of.complete or of.steps is not None):
            return len(of.values) if of.steps is None else self.output("len", [of.steps])
        elif name == "slice" and of.complete and all(argument is None or isinstance(argument, int) for argument in arguments[1:]):
            return self._copied(of.values[slice(*(*arguments[1:], None, None)[:3])])
        elif name == "slice" and of.steps is not None and all(argument is None or isinstance(argument, int) for argument in arguments[1:]):
            if [*arguments[1:]] == [None, None, -1]:
                return self._listed(self.output("flip", [of.steps, Items([0])]))
            return self._listed(self.output("slice", [of.steps, 0, *arguments[1:]]))
        elif name == "list" and of.steps is not None:
            return self._listed(of.steps)
        elif name == "list" and of.complete:
            return self._copied(of.values)
        elif name == "add" and of.complete and self._is_complete(arguments[1]):
            return self._copied(of.values, arguments[1].values)
        elif name == "add" and self._is_listed(of) and self._is_listed(arguments[1]):
            return self._listed(self.joined(*(of.steps or of for of in (of, arguments[1]))))
        elif self._is_filled(of, name, arguments):
            of.complete = False
        else:
            of.complete, of.steps = False, None
            of.values += [argument for argument in arguments[1:] if argument is not None]
            for lists in self.lists:
                lists.filled[of] = None
            return self.unknown([of], name)
        return of

    def _is_filled(self, of: Items, name: str, arguments: Sequence[Any]) -> bool:
        """Note a value that every step of the innermost loop puts at an end of a list from before it, if it is one."""
        at_front = name == "insert" and arguments[1:2] == [0]
        items = arguments[1] if name == "add_" else Items([*arguments[2 if at_front else 1 :]])
        single = isinstance(items, Items) and items.complete and len(items.values) == 1 and isinstance(items.values[0], Ref)
        innermost = bool(self.within) and self.within[-1][0] == A_LOOP and of.level == self.level - 1
        if not (name in ("append", "add_") or at_front) or not (single and innermost and (of.complete or of.steps is not None)):
            return False
        self.lists[-1].filled[of] = items.values[0], at_front
        self.lists[-1].before[of] = Items([*of.values], of.level) if of.steps is None else of.steps
        of.values, of.steps = [*of.values, *items.values], None
        return True

    def _is_complete(self, value: Any) -> bool:
        """Return whether a value is a list whose items are known."""
        self._note_read(value)
        return isinstance(value, Items) and value.complete

    def _is_listed(self, value: Any) -> bool:
        """Return whether a value is a list whose items are known, or given by a loop."""
        return self._is_complete(value) or (isinstance(value, Items) and value.steps is not None)

    def _listed(self, steps: Ref) -> Items:
        """Return a list whose items a run of a loop gives."""
        return Items([], self.level, complete=False, steps=steps)

    def joined(self, first: Ref | Items, second: Ref | Items) -> Ref:
        """Return the stand-in for two lists behind one another, of which a loop filled at least one."""
        for empty, other in ((first, second), (second, first)):
            if isinstance(empty, Items) and not empty.values and isinstance(other, Ref):
                return other
        return self.output(JOINED, [first, second])

    def _copied(self, *lists: list[Any]) -> Items:
        """Return a list of the items of others."""
        self.spend(1 + sum(map(len, lists)) // 8)
        return Items([item for items in lists for item in items], self.level)

    def output(self, kind: str, inputs: Sequence[Any], label: str = "") -> Ref:
        """Note an operator, and return what it gives."""
        return self.program.output(self.program.apply(kind, [self.argument(value) for value in inputs], label=label))

    def unknown(self, values: Iterable[Any], label: str, changes: bool = False) -> Ref:
        """Return a value that is computed from others in a way that is not followed.

        changes  whether that may change them in place
        """
        arguments = list(refs([self.argument(value) for value in values]))
        operation = self.program.apply(UNKNOWN, arguments, label=label)
        if changes:
            self.program.change(operation, operation.inputs)
        return self.program.output(operation)


def _single_place(operands: Sequence[Any]) -> Any:
    """Return the place that an index by a tensor of one number names, as in `x[[step]]`; None of any other index."""
    match operands:
        case [_, [Ref(operation=operation)]] if operation is not None and operation.kind == "tensor":
            match operation.inputs:
                case [[place], *_] if isinstance(place, Ref):
                    return place
    return None
