"""A program of aten's operators on its way into a description: each operator by one rule, without a run."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rnnconvert.containers.reading import charging
from rnnconvert.core.arrays import Source
from rnnconvert.core.errors import RefusedError
from rnnconvert.files.adapter import unique
from rnnconvert.formats.pytorch import aten
from rnnconvert.formats.pytorch.aten_operator import BoundCall, PackedSteps, ProgramBuilder
from rnnconvert.formats.pytorch.described.loops import by_loop, read_loop
from rnnconvert.formats.pytorch.described.modules import Modules
from rnnconvert.formats.pytorch.program.kinds import BRANCH, CELLS, LIST, LISTED, LOOP, RECURRENT
from rnnconvert.formats.pytorch.program.program import ElementTypeOf, OperatorCall, OperatorProgram, Ref, Several, refs
from rnnconvert.graphs.sizes import Dim, Dims, Size
from rnnconvert.models.model import Unit
from rnnconvert.scaffolding import kinds, operations
from rnnconvert.scaffolding.description import Check, DescribedModel, Description, Value, prune
from rnnconvert.scaffolding.needs import NeedError, Needs
from rnnconvert.scaffolding.tensors import SourceTensor

_INLINE = 16
_COMPLEX = re.compile(r"_?fft_\w+|i?stft|view_as_(complex|real)|complex|polar|real|imag|angle")
_INTEGERS = (
    "it is of a module that computes in integers",
    "Save the module as it was before it was quantized. `convert` reads its recurrent layers alone.",
)
_AROUND = (
    "Save the module without it, with its result as an input or what it reads as an output, and compute it around the file; "
    "convert writes the recurrent layers alone"
)


class ProgramReading:
    """A program on its way into a description, for one choice of what its inputs are.

    build  the description in the making
    names  what the file calls each layer
    packed  the packed sequences, by what is packed and its lengths
    reads_fixed_length  whether it reads the length of an axis that is not open, where another choice may read that of another axis
    spreads  how many sums and products are of tensors with different numbers of axes
    """

    def __init__(
        self, program: OperatorProgram, units: Sequence[Unit], arrays: Mapping[str, Source], name: str, needs: Needs, partial: bool
    ) -> None:
        self.build: ProgramBuilder = ProgramBuilder(DescribedModel(name), hold=self._hold, needs=needs, partial=partial)
        self.names: dict[str, tuple[str, ...]] = {}
        self.reads_fixed_length = False
        self.spreads = 0
        self.packed: dict[Any, PackedSteps] = {}
        self.arrays: dict[str, Source] = {**program.constants, **arrays}
        self._program = program
        self._values: dict[Ref, Any] = {}
        self._held: dict[str, SourceTensor] = {}
        self._used: dict[str, str] = {}
        self._products: dict[int, tuple[SourceTensor, SourceTensor, SourceTensor]] = {}
        self._reading = charging(0)
        self._leaves: dict[int, tuple[list[Any], int]] = {}
        self._modules = Modules(self, program.operations, program.outputs)
        layered = (operation.inputs for operation in program.operations if operation.kind in (*RECURRENT, *CELLS))
        self._of_layers = {ref.stored for ref in refs(layered) if ref.stored}
        self._by_array = {name: unit for unit in units if not unit.alias for name in unit.arrays}
        self._itself = unique("layer", {unit.name.partition(".")[0] for unit in units})  # where the file is one layer, it has no name

    def description(self, inputs: Sequence[tuple[Dims, str]]) -> Description:
        """Return the description, for the axes and element types of the inputs."""
        for ref, (dims, dtype) in zip(self._program.inputs, inputs, strict=True):
            self._values[ref] = self.build.input(ref.name, dims, dtype)
        for loop, inside in by_loop(self._program.operations):
            if loop is None:
                self._modules.run(inside)
            else:
                read_loop(self, loop, inside)
        if "batch" not in self.build.roles.values():  # no layer says which axis it is
            for dims, _ in inputs:
                if len(dims) > 1:
                    self.build.call(dims[0], "batch")
        outputs = self._program.outputs if isinstance(self._program.outputs, list) else [self._program.outputs]
        ends = [end for output in outputs for end in _flat(self.value(output))]
        self.build.place = "its outputs"
        if not ends or not all(isinstance(end, SourceTensor) for end in ends):
            raise self.build.refuse("a program that gives other than tensors", "a module gives tensors here")
        scope = self.build.scope
        scope.outputs = tuple(self.build.read(end) for end in ends)
        prune(scope)
        if any(not isinstance(size, int) for node in scope.every_node() if isinstance(node.kind, kinds.Split) for size in node.kind.sizes):
            raise self.build.refuse("an open axis cut into parts", "no weights ask for a length of them")
        stated = (check for check in self._program.checks if not _by_weights(scope, check))
        checks = tuple(dict.fromkeys([*stated, *self._long_enough(scope.inputs)]))
        conditions = " and ".join(check.spelled([value.name for value in scope.inputs])[1] for check in checks)
        notes = [f"it takes only inputs of these sizes: {conditions}"] if checks else []
        called = [[operation.inputs, *(operation.called or ())[1:2]] for operation in self._program.operations]
        read = {ref.stored for ref in refs([*called, self._program.outputs])}
        unread = [unit.name for unit in self._by_array.values() if not read & set(unit.arrays)]
        notes += [f"left out, since nothing reads it: {', '.join(map(repr, dict.fromkeys(unread)))}"] if unread else []
        used = {id(value) for node in scope.nodes for value in node.reads()} | set(map(id, scope.outputs))
        idle = [value.name for value in scope.inputs if id(value) not in used]
        notes += [f"no output depends on its inputs {', '.join(map(repr, idle))}"] if idle else []
        return Description(scope, tuple(notes), self.names, words=self.build.words, roles=self.build.roles, checks=checks)

    @contextlib.contextmanager
    def within(self, scope: DescribedModel) -> Iterator[None]:
        """Read into a model in the model, in which nothing stands for the outer one's values yet."""
        before = self.build, self._values, self._held
        self.build, self._values, self._held = replace(self.build, scope=scope, _where={}), {}, {}
        try:
            yield
        finally:
            self.build, self._values, self._held = before

    def same(self, dim: Dim, other: Dim) -> None:
        """See that two lengths are one. Raises NeedError if an input's has to be the other, ValueError if they cannot be one."""
        opened = [f"{ref.name}, axis " for ref in self._program.inputs]
        if isinstance(dim, Size) and isinstance(other, Size) and dim != other and other.symbol and dim.symbol.startswith(tuple(opened)):
            raise NeedError(dim.symbol, other)
        self.build.need(dim, other)

    def ask_type(self, x: SourceTensor, dtype: str) -> None:
        """Raise NeedError where a tensor is of an input whose element type the file does not state: it has to be another."""
        word = f"type of {x.name}"
        if word not in self.build.needs and any(ref.name == x.name and not ref.dtype for ref in self._program.inputs):
            raise NeedError(word, dtype)

    def _long_enough(self, inputs: Sequence[Value]) -> Iterator[Check]:
        """Yield the conditions that the inputs are as long as the program reads them."""
        for number, value in enumerate(inputs):
            for axis, symbol in enumerate(value.axes):
                if self.build.least.get(symbol, 1) > 1:
                    yield Check(f"{{0}} >= {self.build.least[symbol]}", ((number, axis),))

    def outcome(self, ref: Ref) -> Any:
        """Return the stand-in for a value of the program, or the error for one that could not be read."""
        try:
            return self.value(ref)
        except (RefusedError, NeedError) as error:
            return error

    @property
    def reached(self) -> int:
        """How many values of the program could be read."""
        return sum(not isinstance(value, Exception) for value in self._values.values())

    def give(self, ref: Ref, value: Any) -> None:
        """Let something stand for a value of the program."""
        self._values[ref] = value

    def read(self, operation: OperatorCall) -> None:
        """Read an operator; what cannot be read is an error where something reads it."""
        if operation.kind in (LOOP, LISTED) and all(ref in self._values for ref in operation.outputs.values()):
            return  # the loop gives it
        self.build.place = _place(operation)
        try:
            with self._refusing(operation):
                results = self._results(operation)
        except NeedError as error:
            results = error
        except RefusedError as error:
            results = self._left_out(operation, error) if self.build.partial else error
        for number, ref in operation.outputs.items():
            several = isinstance(results, (list, tuple)) and operation.kind not in _OF_LISTS
            self._values[ref] = results[number] if several and number < len(results) else results

    def _refusing(self, operation: OperatorCall) -> contextlib.AbstractContextManager[None]:
        """Refuse an operator in the block for what is raised over its arguments."""
        return self.build.refusing(f"the operator {operation.kind} as it is called", "no line is known for it")

    def _left_out(self, operation: OperatorCall, error: RefusedError) -> Any:
        """Return stand-ins for the outputs of an operator."""
        called = [] if operation.called is None else [*operation.called[1], *operation.called[2].values()]
        outcomes = _flat([self.outcome(ref) for ref in refs([operation.inputs, *called])])
        need = next((outcome for outcome in outcomes if isinstance(outcome, NeedError)), None)
        if need is not None:
            return need
        inputs = [x for x in outcomes if isinstance(x, SourceTensor)]
        outputs: list[tuple[Dims | None, str, str]] = []
        for ref in operation.outputs.values():
            dims = (
                None
                if ref.dims is None
                else tuple(
                    length if isinstance(length, int) else self.build.opened(length or f"{ref.name}, axis {axis}")
                    for axis, length in enumerate(ref.dims)
                )
            )
            outputs.append((dims, ref.dtype or "float32", operation.kind))
        tensors = dict(zip(operation.outputs, self.build.left_out(error, list(dict.fromkeys(inputs)), outputs), strict=True))
        return [tensors.get(number) for number in range(max(tensors) + 1)] if len(tensors) > 1 else next(iter(tensors.values()), None)

    def _results(self, operation: OperatorCall) -> Any:
        if operation.kind == BRANCH:
            return self._chosen(*operation.inputs)
        if operation.called is None:
            arguments: Sequence[Any] = operation.inputs
            named: Mapping[str, Any] = {}
        else:
            _, arguments, named = operation.called
        kind = operation.kind if operation.kind in aten.OPERATORS or operation.called is None else operation.called[0].rstrip("_")
        operator = aten.OPERATORS.get(kind)
        if operator is None or operator.rule is None:
            reason = "whole models have no complex numbers" if _COMPLEX.fullmatch(kind) else "no line is known for it"
            reason, remedy = _INTEGERS if _called(operation).startswith(("quantize", "dequantize")) else (reason, _AROUND)
            raise RefusedError(f"the operator {_called(operation)}", "a model written as code", reason, remedy, self.build.place)
        values = [self.value(argument) for argument in arguments]
        options = {key: self.value(argument) for key, argument in named.items()}
        self._reading.work(sum(map(self._count, [*values, *options.values()])), self.build.scope.name)
        self.build.check_sized([x for x in _flat([values, *options.values()]) if isinstance(x, SourceTensor)])
        packed = next((value for value in values if isinstance(value, PackedSteps)), None) if kind in aten.OF_ROWS else None
        values = values if packed is None else [packed.rows(value) for value in values]
        by_columns = (
            packed is not None and kind == "batch_norm"
        )  # its channels are the second axis: of rows the last, of sequences the third
        values = [self.build.transpose(values[0], (0, 2, 1)), *values[1:]] if by_columns else values
        call = BoundCall(kind, operator, operation, values, options)
        results = operator.rule(self, call)
        call.check_read()
        ranks = {x.rank for x in values if isinstance(x, SourceTensor) and x.rank and x.numbers is None and not x.stored}
        self.spreads += kind in _JOINS and len(ranks) > 1
        in_place = operation.called is not None and operation.called[0].endswith("_") and not operation.called[0].endswith("__")
        if in_place and isinstance(results, SourceTensor) and isinstance(values[0], SourceTensor) and results.rank != values[0].rank:
            raise ValueError(f"a result of {results.rank} axes in the place of {values[0].rank}")
        results = self.build.transpose(results, (0, 2, 1)) if by_columns else results
        return results if packed is None else replace(packed, x=results, zero=False)

    def _chosen(self, condition: Any, otherwise: Any, then: Any) -> Any:
        """Return one of two values; one that a step of a loop decides is picked number by number, out of tensors of one form."""
        truth = self.value(condition)
        if not isinstance(truth, SourceTensor):
            return self.value(then if truth else otherwise)
        if truth.dtype != "bool" or truth.dims:
            raise ValueError("a branch that other than one truth decides")
        yes, no = ends = [self.value(then), self.value(otherwise)]
        tensors = all(isinstance(x, SourceTensor) for x in ends) and yes.rank == no.rank
        for pair in zip(yes.dims, no.dims, strict=True) if tensors else ():
            for dim, length in (pair, pair[::-1]):
                if isinstance(dim, Size) and isinstance(length, int):
                    self.build.need(dim, length)
        if not tensors or yes.dtype != no.dtype or yes.dims != no.dims:
            raise ValueError("a branch that a run decides, between other than tensors of one form")
        return self.build.elementwise("where", [truth, yes, no], yes.dtype)

    def _count(self, value: Any) -> int:
        """Return how many values a value has, counting a list's each time that it occurs: lists of lists can multiply."""
        if not isinstance(value, list):
            return 1
        entry = self._leaves.get(id(value))
        if entry is None:  # the list is held, so that no other takes its place in memory
            entry = self._leaves[id(value)] = value, sum(map(self._count, value))
        return entry[1] + 1

    def value(self, argument: Any) -> Any:
        """Return an argument as the description has it. Raises what was wrong with it."""
        if isinstance(argument, list):
            return [self.value(item) for item in argument]
        if isinstance(argument, Several):
            before, self.build.place = self.build.place, _place(argument.operation)
            with self._refusing(argument.operation):
                results = self._results(argument.operation)
            self.build.place = before
            return results
        if isinstance(argument, ElementTypeOf):
            x = self.value(argument.value)
            return np.dtype(x.dtype) if isinstance(x, SourceTensor) else argument
        if not isinstance(argument, Ref):
            return argument
        value = self.parameter(argument.stored) if argument.stored else self._values.get(argument)
        if isinstance(value, Exception):
            raise value
        if value is None:
            in_loop = argument.operation is not None and argument.operation.loop is not None
            reason = "it is of a step of a loop, and read outside of it" if in_loop else "nothing before it gives it"
            raise self.build.refuse(f"the value {argument.name!r}", reason)
        return value

    def parameter(self, name: str) -> SourceTensor:
        """Return a parameter, buffer or constant as a separate tensor."""
        if name not in self._held:
            array = self.arrays.get(name)
            if array is None:
                raise self.build.refuse(f"the constant {name!r}", "its numbers are not among the file's weights")
            self._held[name] = tensor = SourceTensor(tuple(array.shape), str(array.dtype), name, stored=name)
            written = array.size <= _INLINE and (array.ndim == 0 or name not in self._by_array)  # what a file learned is filled
            if written or array.dtype.kind != "f":
                tensor.numbers = np.asarray(array)
        return self._held[name]

    def unit(self, *tensors: SourceTensor | None) -> Unit:
        """Return the layer whose arrays some tensors are. Raises RefusedError if they belong to none, or to several."""
        units = {id(unit): unit for x in tensors if x is not None and (unit := self._by_array.get(x.stored)) is not None}
        arrays = [array for unit in units.values() for array in unit.arrays]
        if len(units) != 1 or any(x is not None and x.stored not in arrays for x in tensors):
            raise self.build.refuse("a layer whose weights are computed, or belong to several layers", "no layer of the file has them")
        (unit,) = units.values()
        return unit.replace(name=self.layer(unit.name))

    def product(self, x: SourceTensor, y: SourceTensor) -> SourceTensor:
        """Return a product, as code from before aten had `linear` spells a dense layer: with its matrix, turned; its bias follows."""
        base, moved = y.origin or (y, None)
        turned = moved is not None and (base.rank, y.rank) == (2, 2) and moved.groups == moved.base[::-1]
        unit = self.used_as(base, "dense") if turned else None
        if unit is None:
            return operations.matmul(self.build, x, y)
        if "bias" not in unit.names:
            return self.dense(x, base)
        product = operations.matmul(self.build, x, y)
        self._products[id(product)] = product, x, base
        return product

    def sum(self, left: Any, right: Any) -> SourceTensor | None:
        """Return the dense layer that a product with its bias added is; None for other operands."""
        for product, bias in ((left, right), (right, left)):
            if id(product) in self._products and isinstance(bias, SourceTensor) and bias.stored:
                _, x, weight = self._products[id(product)]
                if self._by_array.get(bias.stored) is self._by_array[weight.stored]:
                    return self.dense(x, weight, bias)
        return None

    def dense(self, x: SourceTensor, weight: SourceTensor, bias: SourceTensor | None = None) -> SourceTensor:
        """Add a dense layer: a product alone, with a matrix that is computed, or another layer's."""
        units, width = weight.dims
        if x.dtype != "float32" or not x.rank:
            raise ValueError(f"a layer of {x.dtype} with {x.rank} axes")
        self.build.need(x.dims[-1], width)
        unit = self.used_as(weight, "dense")
        alone = unit is not None and ("bias" in unit.names) == (bias is not None)
        if unit is None or not alone or (bias is not None and self._by_array.get(bias.stored) is not self._by_array[weight.stored]):
            product = operations.matmul(self.build, x, self.build.transpose(weight, (1, 0)))
            return product if bias is None else self.build.elementwise("add", [product, bias])
        assert isinstance(units, int)
        return self.build.add_layer(
            kinds.Dense(units=units, bias=bias is not None), [x], (*x.dims[:-1], units), layer=self.layer(unit.name)
        )

    def used_as(self, weight: SourceTensor, kind: str) -> Unit | None:
        """Return the layer of a kind whose matrix a tensor is; None for other tensors, and for a layer that is used as another kind."""
        unit = self._by_array.get(weight.stored)
        if unit is None or kind not in unit.kinds or unit.names.get("weight") != weight.stored:
            return None
        return unit if self._used.setdefault(unit.name, kind) == kind else None

    def layer(self, name: str) -> str:
        """Return a layer's path within the model that is being read. Raises RefusedError for another model's."""
        path = self.build.scope.path
        within = path.replace("/", ".") + "."
        if path and not name.startswith(within):
            raise self.build.refuse(f"the layer {name!r} in the module {path!r}", "it belongs to another one")
        local = name.removeprefix(within) if path else name or self._itself
        self.names[f"{path}/{local}".lstrip("/")] = (name,)
        return local

    def module(self, operation: OperatorCall) -> str:
        """Return the class of torch.nn's module in whose call an operator runs, "" for another's."""
        kind = operation.callers[-1].kind if operation.callers else ""
        return kind.rpartition(".")[2] if kind.startswith("torch.nn.modules.") else ""

    def path(self, operation: OperatorCall, default: str) -> str:
        """Return the path of a layer without weights: that of torch.nn's module that calls it, or a new one."""
        path, within = operation.callers[-1].path if self.module(operation) else "", self.build.scope.path.replace("/", ".")
        if path and f"{path}.".startswith(f"{within}." if within else ""):
            return path.removeprefix(within).lstrip(".")
        return f"{default}_{len(self.build.scope.nodes)}"

    def _hold(self, x: SourceTensor) -> Value:
        """Add a parameter of no layer as one of the model's own."""
        unit = self._by_array.get(x.stored)
        kind = "" if unit is None else self._used.get(unit.name, next((k for k in ("dense", "embedding") if k in unit.kinds), ""))
        if unit is not None and kind:
            array = next(word for word, name in unit.names.items() if name == x.stored)
            words: dict[str, Any] = {
                "of": kind,
                "array": array,
                "sizes": self.arrays[unit.names["weight"]].shape,
                "bias": "bias" in unit.names,
            }
            (tensor,) = self.build.several(kinds.LayerWeight(**words), self.layer(unit.name), [], [(x.dims, x.dtype, x.name)])
            assert tensor.value is not None
            return tensor.value
        if unit is None or self._of_layers.intersection(unit.arrays):
            raise self.build.refuse(f"the weights {x.stored!r} outside of their layer", "they would have to be in two places")
        name = unit.name if unit.kinds == ("array",) else x.stored
        value = self.build.parameter(self.arrays[x.stored].shape, x.dtype, self.layer(name)).value
        assert value is not None
        return value


_JOINS = ("add", "sub", "mul", "div", "maximum", "minimum")
"""Operators of two tensors that usually have the same number of axes."""
_OF_LISTS = ("size", LIST, "list", "slice_list", "list_add")


def _by_weights(scope: DescribedModel, check: Check) -> bool:
    """Return whether weights ask for a length anyway: of a last axis that layers alone read."""
    number, axis = check.axes[0]
    x = scope.inputs[number]
    readers = [node for node in scope.nodes if any(value is x for value in node.reads())]
    layers = all(isinstance(node.kind, kinds.Dense | kinds.Recurrent) and node.x is x for node in readers)
    return check.text.startswith("{0} == ") and len(check.axes) == 1 and axis == len(x.shape) - 1 and bool(readers) and layers


def _place(operation: OperatorCall) -> str:
    """Return where an operator stands: the module that calls it, or its own name."""
    caller = operation.callers[-1].path if operation.callers else ""
    return f"{caller or operation.label} ({_called(operation)})"


def _called(operation: OperatorCall) -> str:
    """Return the name of an operator as its program calls it: the kinds of our own are phrases."""
    return operation.label if " " in operation.kind else operation.kind


def _flat(value: Any) -> list[Any]:
    return [leaf for item in value for leaf in _flat(item)] if isinstance(value, (list, tuple)) else [value]
