"""A TorchScript archive or a program of torch.export as a description: its operators, followed without a run.

An archive states no shapes. What its inputs may be is found by reading it with each number of axes in turn, and with the lengths
that its weights ask for.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import RefusedError, RnnConvertError, UsageError
from rnnconvert.files.load import load_with
from rnnconvert.files.options import Options
from rnnconvert.formats.pytorch import aten
from rnnconvert.formats.pytorch.files import _stored as stored_in
from rnnconvert.formats.pytorch.metadata import TorchMetadata
from rnnconvert.formats.pytorch.program.program import RECURRENT, Operation, Program, Ref
from rnnconvert.formats.pytorch.whole import of_checkpoint
from rnnconvert.models.model import Unit
from rnnconvert.scaffolding.building import Builder, Tensor
from rnnconvert.scaffolding.description import Description, Scope, Value, prune
from rnnconvert.scaffolding.sizes import Dim, Dims, Size, open_size

_TRIES = 200
"""The most readings of one program."""
_INLINE = 16


class NeedError(Exception):
    """An input has to be of a certain length, or of a certain element type."""

    def __init__(self, symbol: str, value: int | str) -> None:
        super().__init__(symbol, value)
        self.symbol, self.value = symbol, value


Rule = Callable[["Reading", "Call"], Any]
"""Adds what an operator computes, and returns what it gives: a Tensor, a number, or a list of them."""


class Call:
    """An operator that is being read, with its arguments by name.

    names  its parameters, in the order in which calls have them
    """

    def __init__(self, name: str, operation: Operation, arguments: Sequence[Any], named: Mapping[str, Any], names: str) -> None:
        self.name, self.operation, self.arguments = name, operation, arguments
        words = names.split()
        if len(arguments) > len(words):
            raise ValueError(f"{len(arguments)} arguments, of which {' '.join(words)} are known")
        self._values = dict(zip(words, arguments, strict=False))
        for key, value in named.items():
            word = words[0] if key in ("self", "input") and words else key
            if word not in words and key not in (
                "device",
                "layout",
                "pin_memory",
                "memory_format",
                "non_blocking",
                "copy",
                "requires_grad",
            ):
                raise ValueError(f"the argument {key!r}")
            self._values[word] = value

    def __call__(self, word: str, default: Any = None) -> Any:
        value = self._values.get(word)
        return default if value is None else value

    def tensor(self, word: str = "x") -> Tensor:
        """Return an argument that must be a tensor."""
        value = self(word)
        if not isinstance(value, Tensor):
            raise TypeError(f"{word} is not a tensor")
        return value

    def axis(self, word: str = "dim", default: Any = None, x: str = "x") -> int:
        """Return an axis counted from the front."""
        axis, rank = self(word, default), self.tensor(x).rank
        if not isinstance(axis, int) or not -rank <= axis < rank:
            raise ValueError(f"axis {axis} of {rank}")
        return axis % rank


class Reading:
    """A program on its way into a description, for one choice of what its inputs are.

    build  the description in the making
    names  what the file calls each layer
    """

    def __init__(self, program: Program, units: Sequence[Unit], arrays: Mapping[str, Array], name: str) -> None:
        self.build = Builder(Scope(name), hold=self._hold)
        self.names: dict[str, tuple[str, ...]] = {}
        self.arrays, self._program = arrays, program
        self._values: dict[Ref, Any] = {}
        self._held: dict[str, Tensor] = {}
        self._by_array = {name: unit for unit in units if not unit.alias for name in unit.arrays}

    def description(self, inputs: Sequence[tuple[Dims, str]]) -> Description:
        """Return the description, for the axes and element types of the inputs."""
        for ref, (dims, dtype) in zip(self._program.inputs, inputs, strict=True):
            self._values[ref] = self.build.input(ref.name, dims, dtype)
            if len(dims) > 1:
                self.build.call(dims[0], "batch")
        for operation in self._program.operations:
            self._operation(operation)
        outputs = self._program.outputs if isinstance(self._program.outputs, list) else [self._program.outputs]
        ends = [end for output in outputs for end in _flat(self.value(output))]
        self.build.place = "its outputs"
        if not ends or not all(isinstance(end, Tensor) for end in ends):
            raise self.build.refuse("a program that gives other than tensors", "a module gives tensors here")
        scope = self.build.scope
        scope.outputs = tuple(self.build.read(end) for end in ends)
        prune(scope)
        return Description(scope, (), self.names, words=self.build.words, roles=self.build.roles)

    def _operation(self, operation: Operation) -> None:
        """Read an operator; what cannot be read is an error where something reads it."""
        self.build.place = f"{operation.label} ({operation.kind})"
        before = len(self.build.scope.nodes)
        try:
            results = self._results(operation)
        except (RefusedError, NeedError) as error:
            results = error
        except (ValueError, TypeError, IndexError, KeyError, ArithmeticError, AttributeError, OverflowError) as error:
            results = self.build.refuse(f"the operator {operation.kind} as it is called", f"no line is known for it: {error}")
        if isinstance(results, Exception):
            del self.build.scope.nodes[before:]
        for number, ref in operation.outputs.items():
            several = isinstance(results, (list, tuple)) and operation.kind not in _OF_LISTS
            self._values[ref] = results[number] if several and number < len(results) else results

    def _results(self, operation: Operation) -> Any:
        from rnnconvert.formats.pytorch.described_files.operators import RULES

        if operation.kind == aten.BRANCH:
            return self.value(operation.inputs[2 if self.value(operation.inputs[0]) else 1])
        if operation.called is None:
            arguments: Sequence[Any] = operation.inputs
            named: Mapping[str, Any] = {}
        else:
            _, arguments, named = operation.called
        if operation.loop is not None:
            raise self.build.refuse("a loop whose steps a run decides", "it is not a plain layer")
        kind = operation.kind if operation.kind in RULES or operation.called is None else operation.called[0].rstrip("_")
        rule = RULES.get(kind)
        if rule is None:
            raise self.build.refuse(f"the operator {operation.kind}", f"the known ones are {', '.join(sorted(RULES))}")
        names, function = rule
        return function(
            self,
            Call(
                kind,
                operation,
                [self.value(argument) for argument in arguments],
                {key: self.value(argument) for key, argument in named.items()},
                names,
            ),
        )

    def value(self, argument: Any) -> Any:
        """Return an argument as the description has it. Raises what was wrong with it."""
        if isinstance(argument, list):
            return [self.value(item) for item in argument]
        if not isinstance(argument, Ref):
            return argument
        value = self.parameter(argument.stored) if argument.stored else self._values.get(argument)
        if isinstance(value, Exception):
            raise value
        if value is None:
            raise self.build.refuse(f"the value {argument.name!r}", "nothing before it gives it")
        return value

    def parameter(self, name: str) -> Tensor:
        """Return a parameter, buffer or constant as a tensor of its own."""
        if name not in self._held:
            array = self.arrays.get(name)
            if array is None:
                raise self.build.refuse(f"the constant {name!r}", "its numbers are not among the file's weights")
            self._held[name] = tensor = Tensor(tuple(array.shape), str(array.dtype), name, stored=name)
            if array.size <= _INLINE or array.dtype.kind not in "f":
                tensor.numbers = np.asarray(array)
        return self._held[name]

    def unit(self, *tensors: Tensor | None) -> Unit:
        """Return the layer whose arrays some tensors are. Raises RefusedError if they belong to none, or to several."""
        units = {id(unit): unit for x in tensors if x is not None and (unit := self._by_array.get(x.stored)) is not None}
        if len(units) != 1 or any(x is not None and x.stored not in next(iter(units.values())).arrays for x in tensors):
            raise self.build.refuse("a layer whose weights are computed, or belong to several layers", "no layer of the file has them")
        (unit,) = units.values()
        self.names[unit.name] = (unit.name,)
        return unit

    def _hold(self, x: Tensor) -> Value:
        """Add a parameter of no layer as one of the model's own."""
        unit = self._by_array.get(x.stored)
        if unit is None or unit.kinds != ("array",):
            raise self.build.refuse(f"the weights {x.stored!r} outside of their layer", "they would have to be in two places")
        self.names[unit.name] = (unit.name,)
        value = self.build.parameter([int(n) for n in x.dims], x.dtype, unit.name).value  # type: ignore[arg-type]
        assert value is not None
        return value

    def need(self, dim: Dim, length: int) -> None:
        """See that an axis has a length. Raises NeedError for an open one, ValueError for another."""
        if isinstance(dim, Size) and len(dim.terms) == 1:
            ((names, count),) = dim.terms
            if len(names) == 1 and length % count == 0:
                raise NeedError(names[0], length // count)
        if dim != length:
            raise ValueError(f"an axis of {dim} where {length} is asked for")


_OF_LISTS = ("size", aten.LIST, "list", "slice_list", "list_add")


def _flat(value: Any) -> list[Any]:
    return [leaf for item in value for leaf in _flat(item)] if isinstance(value, (list, tuple)) else [value]


def describe(path: Path, config: Path | None = None) -> Description:
    """Return the model of a file.

    Raises RefusedError for an operator that is not known, with its place; UsageError for a file without a program.
    """
    if config is not None:
        raise UsageError(f"{path} states its model. Leave out config ({config})")
    follow = stored_in(path).metadata_as(TorchMetadata).get("follow")
    if follow is None:
        raise UsageError(
            f"{path} holds weights without a model. Models come from files that state their layers: of torch.jit.save or "
            "torch.export.save, or from a live module"
        )
    program = follow()
    if isinstance(program, str) or program.outputs is None:
        why = program if isinstance(program, str) else "what it gives is not stated plainly"
        raise RefusedError("a program that is not followed", "a model written as code", why, "", "")
    checkpoint = load_with(path, "pytorch", Options())
    units = of_checkpoint(checkpoint).units
    return _tried(program, lambda: Reading(program, units, checkpoint.arrays, "model"))


def _tried(program: Program, reading: Callable[[], Reading]) -> Description:
    """Return the description for the first choice of inputs that every operator takes."""
    kinds = {operation.kind for operation in program.operations}
    over_time = kinds & {*RECURRENT, "conv1d", "convolution", "_convolution"}
    ranks = (2, 3, 1) if "embedding" in kinds else (3, 2, 4, 1) if over_time else (4, 3, 2) if "conv2d" in kinds else (2, 3, 4, 1)
    stated = [[len(ref.dims)] if ref.dims is not None else list(ranks) for ref in program.inputs]
    first: RnnConvertError | None = None
    tries = 0
    for choice in itertools.product(*stated):
        needs: dict[str, int | str] = {}
        while tries < _TRIES:
            tries += 1
            inputs = [_input(ref, rank, needs) for ref, rank in zip(program.inputs, choice, strict=True)]
            try:
                return reading().description(inputs)
            except NeedError as need:
                if need.symbol in needs:
                    break
                needs[need.symbol] = need.value
            except RefusedError as error:
                first = first or error
                break
    raise first or RefusedError("its inputs", "a model written as code", "no number of axes fits all of its operators", "", "")


def _input(ref: Ref, rank: int, needs: Mapping[str, int | str]) -> tuple[Dims, str]:
    """Return the axes and the element type of an input."""
    dims: list[Dim] = []
    for axis in range(rank):
        length = ref.dims[axis] if ref.dims is not None else None
        symbol = length if isinstance(length, str) else f"{ref.name}, axis {axis}"
        bound = needs.get(symbol, length)
        dims.append(bound if isinstance(bound, int) else open_size(symbol))
    return tuple(dims), str(needs.get(f"type of {ref.name}", ref.dtype or "float32"))
