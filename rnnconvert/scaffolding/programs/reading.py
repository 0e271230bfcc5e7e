"""A whole program as a description: its layers, as a transplant finds them, and every other operation by one rule each."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from rnnconvert.core.arrays import Array
from rnnconvert.core.cached import cached_property
from rnnconvert.core.claims import DYNAMIC
from rnnconvert.core.errors import RefusedError, UsageError
from rnnconvert.core.notes import INTEGERS, LayerNote
from rnnconvert.core.remedies import FixAt, Flag
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.files.load import load_with
from rnnconvert.files.options import Options
from rnnconvert.files.questions import assumptions
from rnnconvert.graphs.program.operations import Declared, Operation, StoredNumbers
from rnnconvert.graphs.program.places import sources
from rnnconvert.graphs.program.scopes import Scope, label_of
from rnnconvert.graphs.program.shapes import Shapes
from rnnconvert.graphs.sizes import Dim, Dims, Size
from rnnconvert.language import registry
from rnnconvert.models.model import Unit
from rnnconvert.recognition.graph_layers import GraphLayer, Uses
from rnnconvert.scaffolding.building import Builder
from rnnconvert.scaffolding.description import DescribedModel, Description, prune
from rnnconvert.scaffolding.fixed import FixedInputs, as_array, check_fixed
from rnnconvert.scaffolding.names import Names
from rnnconvert.scaffolding.needs import Needs, ReadingBudget, StatedAxes, of_axes, open_lengths, stated_ranks
from rnnconvert.scaffolding.programs.counting import CHOSEN, COUNTED, FUNCTIONS, TRUTHS, Attributes, Op, count
from rnnconvert.scaffolding.programs.units import ProgramModel
from rnnconvert.scaffolding.tensors import SourceTensor

if TYPE_CHECKING:
    from rnnconvert.scaffolding.programs.loops import ProgramLoop

FLOATS, _INTEGERS = ("float32", "float64"), ("int32", "int64", "uint8", "int8")


_INLINE = 16
"""The most numbers of a constant that are written out."""
_WORD = re.compile(r"[A-Za-z][A-Za-z_]{0,19}")
"""The names that a file may have for an axis that it leaves open."""


_RANKS = {"Gemm": 2, "Gemm(transB=1)": 2, "MatMul": 2}
"""How many axes layers read at least."""
_HARMLESS = ("consumed_inputs", "ratio", "round_mode", "saturate", "seed", "stash_type", "storage_order")
"""Attributes that change nothing which a description holds: hints of old operator sets, dropout, and how float8 numbers are rounded."""

Rule = Callable[["GraphReading", Op], "SourceTensor | list[SourceTensor | None]"]
"""Adds what an operator computes, and returns what it gives."""


class ReadingPlace(NamedTuple):
    """Where operators are read: the model outermost, or a step of a loop.

    build   the description in the making
    values  what stands for values there
    loop    the loop; None for the outermost model
    """

    build: Builder
    values: dict[tuple[Scope, str], SourceTensor]
    loop: ProgramLoop | None


class GraphReading:
    """A model on its way into a description.

    place   where it is being read
    names   what the file calls each layer
    rounds  whether the file rounds what its layers multiply to integers, as it runs
    """

    def __init__(
        self, work: ProgramModel, units: Sequence[Unit], title: str, needs: Needs, partial: bool, ranks: Mapping[str, int]
    ) -> None:
        self.work, self._ranks = work, ranks
        self.place = ReadingPlace(Builder(DescribedModel(title), needs=needs, partial=partial), {}, None)
        self.names: dict[str, tuple[str, ...]] = {}
        self.rounds = False
        self._written_out: set[str] = set()
        self._uses: dict[Scope, Uses] = {}
        self._by_name = {unit.name: unit for unit in units}
        self._layer_names = layer_names([unit for unit in units if not unit.alias])
        self._stored = {where.key(value): name for name, (where, value) in work.values.items()}
        self._computed = {use.value: name for name, computed in work.read.computed.items() for use in computed.recognised.uses}
        self._within = {node for computed in work.read.computed.values() for node in computed.nodes}
        self._inside = {name: node for node in self._within for name in node.outputs}
        self._calls = {call.node: (name, call) for name, call in work.read.calls.items()}
        self._shapes = Shapes(work.read.scopes[0].program)
        self._layers: dict[Operation, tuple[str, GraphLayer]] = {}
        for name, layer in work.plain_layers.items():
            self._layers[layer.nodes[-1]] = name, layer
            self._within.update(layer.nodes[:-1])

    @property
    def build(self) -> Builder:
        """The description in the making."""
        return self.place.build

    @contextlib.contextmanager
    def at(self, place: ReadingPlace) -> Iterator[None]:
        """Read at another place: in a step of a loop, or around the loop."""
        before, self.place = self.place, place
        try:
            yield
        finally:
            self.place = before

    # The graph

    def description(self, fixed: Mapping[str, Array] = MappingProxyType({})) -> Description:
        """Return the description of the main graph, some of whose inputs are fixed."""
        main = self.work.read.scopes[0]
        declared, begins = self.work.declared, {*self.work.reads}
        for name in self.work.reads:
            if main.constant(name) is None:
                self.place.values[main, name] = self._input(declared.get(name) or Declared(name))
        self.walk(main, self._wanted(main, begins))
        ends = [self.tensor(main, name) for name in self.work.gives]
        scope = self.build.scope
        scope.outputs = tuple(self.build.read(end) for end in ends)
        read = {id(value) for value in scope.inputs}
        if any(id(value) in read for value in scope.outputs):
            raise self.build.refuse("an input that is an output too", "a model that hands its input on is not written")
        prune(scope)
        return Description(
            scope, (DYNAMIC,) if self.rounds else (), self.names, words=self.build.words, roles=self.build.roles,
            constants=frozenset(self._written_out), fixed=fixed, integers=self.rounds,
        )  # fmt: skip

    def _input(self, value: Declared) -> SourceTensor:
        self.build.place = f"the input {value.name!r}"
        dtype = value.dtype
        if dtype is None or dtype.name not in (*FLOATS, *_INTEGERS, "bool"):
            raise self.build.refuse("an input other than a plain tensor", "only float32, float64, whole numbers and truths are known here")
        dims = value.dims
        if dims is None and value.name in self._ranks:
            dims = [None] * self._ranks[value.name]
        if dims is None:
            reason = f"its operators mean nothing without one. State it with {Flag('axes')}, once for all such inputs or once for each"
            fix = FixAt(self.work.input_name(value.name)) if dtype.kind != "f" and self._asks("fix") else None
            number = f"Or, where it is a number, state that with {fix}, and the file is written for this value alone" if fix else ""
            raise self.build.refuse("an input without a stated number of axes", reason, number)
        return self.build.input(self.work.input_name(value.name), self._lengths(value.name, dims), dtype.name)

    def _lengths(self, name: str, stated: Sequence[int | str | None]) -> Dims:
        """Return the axes of a value as the file states them, each open one with its word or a new one."""
        dims: list[Dim] = []
        for number, axis in enumerate(stated):
            if isinstance(axis, int) and axis > 0:
                dims.append(axis)
                continue
            word = axis if isinstance(axis, str) else ""
            dims.append(self.build.opened(word or f"{name}, axis {number}"))
            if _WORD.fullmatch(word):
                self.build.words[word] = word
        return tuple(dims)

    def _wanted(self, main: Scope, begins: Collection[str]) -> set[Operation]:
        """Return the nodes on which the outputs depend; of the nodes that are a layer, those on which what the layer reads does.

        begins  the values that are given to the graph, whatever gives them in the file
        """
        wanted, waiting, seen = set[Operation](), list(self.work.gives), {*begins}
        while waiting:
            name = waiting.pop()
            if not name or name in seen:
                continue
            seen.add(name)
            if name in self._computed:
                waiting += self.work.read.computed[self._computed[name]].inputs
            elif (producer := main.producer(name)) is not None:
                wanted.add(producer[0])
                waiting += producer[0].reads
        return wanted

    def uses(self, scope: Scope) -> Uses:
        """Return which nodes of a graph read each value."""
        if scope not in self._uses:
            self._uses[scope] = Uses(scope)
        return self._uses[scope]

    def walk(self, scope: Scope, wanted: Collection[Operation] | None = None) -> None:
        """Read the nodes of a graph in their order: those that are wanted, or all."""
        for node in scope.nodes:
            if wanted is not None and node not in wanted:
                continue
            if node in self._within or all(not name or scope.constant(name) is not None for name in node.outputs):
                continue
            self._node(scope, node)

    def _node(self, scope: Scope, node: Operation) -> None:
        self.build.place = f"{label_of(scope, node)} ({node.operator or node.kind})"
        place = self.build.place
        try:
            with self.build.refusing(f"a node {node.kind} as it stands", "it is not used as its operator asks"):
                results = self._results(scope, node)
        except RefusedError as error:
            if not self.build.partial:
                raise
            self.build.place = place
            results = self._left_out(scope, node, error)
        for name, tensor in zip(node.outputs, results, strict=False):
            if name and tensor is not None:
                self.place.values[scope, name] = tensor

    def _left_out(self, scope: Scope, node: Operation, error: RefusedError) -> list[SourceTensor]:
        """Return stand-ins for the outputs of a node, with the axes that the file states or that follow from others."""
        within = self._layers.get(node)
        inputs = self._those(node.inputs if within is None else [within[1].data], scope)
        return self.build.left_out(error, inputs, self._stated(scope, node.outputs, node.kind.lower()))

    def _those(self, names: Iterable[str], scope: Scope) -> list[SourceTensor]:
        """Return the values among some that can be read."""
        tensors = []
        for name in names:
            with contextlib.suppress(RefusedError):
                tensors += [self.tensor(scope, name)] if name else []
        return tensors

    def _stated(self, scope: Scope, names: Iterable[str], word: str) -> list[tuple[Dims | None, str, str]]:
        """Return the axes of values as the file states them or as they follow from others, their element types, and a name."""
        declared = {value.name: value for value in scope.body.declared}
        outputs: list[tuple[Dims | None, str, str]] = []
        for name in names:
            value = declared.get(name, Declared(name))
            stated = value.dims if value.dims is not None else self._shapes.dims(scope, name) if name else None
            dtype = value.dtype or self._shapes.kind(scope, name)
            dims = None if stated is None else self._lengths(name, stated)
            outputs.append((dims, "float32" if dtype is None else dtype.name, word))
        return outputs

    def _results(self, scope: Scope, node: Operation) -> Sequence[SourceTensor | None]:
        from rnnconvert.scaffolding.programs.layers import layer
        from rnnconvert.scaffolding.programs.loops import read_loop
        from rnnconvert.scaffolding.programs.operators import RULES
        from rnnconvert.scaffolding.programs.recurrent import recurrent

        if node in self._layers:
            name, layer_found = self._layers[node]
            x = self.tensor(scope, layer_found.data)
            self.build.check_sized([x], _RANKS.get(layer_found.operator, 0))
            return [layer(self, self._of(name), layer_found, x)]
        if scope.calls(node):
            called = scope.call(node)
            self.walk(called)
            return [self.tensor(called, name) for name in called.body.outputs]
        if node.kind == "If" and not node.domain:
            return self._branch(scope, node)
        if node.kind in ("Loop", "Scan") and not node.domain:
            return read_loop(self, scope, node)
        if node in self._calls:
            name, placed = self._calls[node]
            return recurrent(self, placed, self._of(name))
        op = self.op(scope, node)
        self.build.check_sized(op.tensors)
        if self.place.loop is not None and (element := self.place.loop.element(op)) is not None:
            return [element]
        if node.kind in (*CHOSEN, *COUNTED, *FUNCTIONS, *TRUTHS) and not node.domain and (counted := count(self.build, op)) is not None:
            return counted
        rule = RULES.get(node.kind) if not node.domain else None
        if rule is None:
            where = f" of the domain {node.domain!r}" if node.domain else ""
            draws = node.kind.startswith("Random")
            reason = "it draws other numbers in each run" if draws else "no line is known for it"
            fixing = self._fixing(scope, node.inputs[-1]) if draws and node.inputs else ""
            raise self.build.refuse(f"the operator {node.operator or node.kind + where}", reason, fixing)
        result = rule(self, op)
        if unread := [name for name in op.values.unread() if name not in _HARMLESS]:
            what = f"the attribute {unread[0]!r} of the operator {node.operator or node.kind}"
            raise self.build.refuse(what, "its line does not read it, and it may change what the operator computes")
        return result if isinstance(result, list) else [result]

    def op(self, scope: Scope, node: Operation) -> Op:
        """Return a node with what it reads. Raises RefusedError for an attribute that no operator here has."""
        return Op(scope, node, self._read_by(scope, node), Attributes(self.attributes(scope, node)))

    def _read_by(self, scope: Scope, node: Operation) -> tuple[SourceTensor | None, ...]:
        return tuple(self.tensor(scope, name) if name else None for name in node.inputs)

    def _branch(self, scope: Scope, node: Operation) -> Sequence[SourceTensor | None]:
        """Return the outputs of an If whose condition is constant, from the branch that is always taken."""
        condition = self.tensor(scope, node.inputs[0]).numbers
        if condition is None:
            reason = "both branches of an If would be a model of their own"
            raise self.build.refuse("a condition that a run decides", reason, self._fixing(scope, node.inputs[0]))
        word = "then_branch" if bool(condition.reshape(-1)[0]) else "else_branch"
        inner = next(branch for branch in scope.inner(node, 0) if branch.path.endswith(f".{word}"))
        # Its layers are known by the scope in which they were found.
        inner = next((each for each in self.work.read.scopes if (each.body, each.path) == (inner.body, inner.path)), inner)
        self.walk(inner)
        return [self.tensor(inner, name) for name in inner.body.outputs]

    def _fixing(self, scope: Scope, condition: str) -> str:
        """Return the way out of a condition that an input decides: a value for that; "" for others."""
        where, name, node = scope.unknown(condition)
        declared = self.work.declared.get(name) or Declared(name)
        dims = declared.dims
        single = node is None and where is self.work.read.scopes[0] and dims is not None and all(dim == 1 for dim in dims)
        if not single or not self._asks("fix"):
            return ""
        producer = scope.producer(condition)
        compared = [scope.constant(each) for each in producer[0].inputs] if producer is not None else []
        numbers = [array.reshape(-1)[0].item() for array in compared if array is not None and array.size == 1]
        numbers = numbers or [False] * (declared.dtype == bool)
        name = self.work.input_name(name)
        way = FixAt(name, numbers[0] if len(numbers) == 1 else None)
        return f"Its input {name} decides it: fix that with {way}, and the file is written for this value alone"

    def _of(self, name: str) -> Unit:
        """Return a layer of the file, for several calls of one the first."""
        unit = self._by_name[name]
        unit = self._by_name.get(unit.alias, unit) if unit.alias else unit
        layer = self._layer_names[unit.name]
        self.names[layer] = (unit.name,)
        return unit.replace(name=layer)

    # Values

    def tensor(self, scope: Scope, name: str) -> SourceTensor:
        """Return a value. Raises RefusedError for one that nothing gives."""
        where, local = scope.resolve(name)
        key, loop = (where, local), self.place.loop
        if key not in self.place.values and loop is not None and not loop.holds(where) and where.constant(local) is None:
            self.place.values[key] = loop.captured(where, local)
        if key not in self.place.values and where is self.work.read.scopes[0] and local in self._computed:
            self._computed_layer(where, self._computed[local])
        numbers = None if key in self.place.values else where.constant(local)
        if key not in self.place.values and numbers is None and where is self.work.read.scopes[0] and local in self._inside:
            self._node(where, self._inside[local])  # what a layer reads through it, another operator reads as it stands
        if key not in self.place.values:
            if numbers is None:
                raise self.build.refuse(f"the value {name!r}", "nothing before it gives it")
            self.place.values[key] = self._held(where, local, numbers)
        return self.place.values[key]

    def _computed_layer(self, scope: Scope, name: str) -> None:
        """Read a layer that other operators compute, and note what of it is used."""
        from rnnconvert.scaffolding.programs.recurrent import computed

        layer, place = self.work.read.computed[name], self.build.place
        try:
            computed(self, scope, self._of(name), layer)
        except RefusedError as error:
            if not self.build.partial:
                raise
            inputs = self._those([*layer.reads, *layer.recognised.states.values()], scope)
            uses = [use.value for use in layer.recognised.uses]
            for value, tensor in zip(uses, self.build.left_out(error, inputs, self._stated(scope, uses, name)), strict=True):
                self.place.values[scope, value] = tensor
        self.build.place = place

    def _held(self, scope: Scope, name: str, numbers: Array) -> SourceTensor:
        """Return a constant: written out if it is short, else a parameter that is filled, or what nodes make of one."""
        dtype = str(numbers.dtype)
        stored, produced = self._stored.get(scope.key(name)), scope.producer(name)
        integers = dtype in ("int8", "uint8")
        if stored is not None and numbers.ndim and (numbers.dtype.kind == "f" or integers):
            unit = self._by_name.get(stored)
            if unit is not None and unit.title == "array" and (numbers.size > _INLINE or integers):
                layer = self._layer_names[stored]
                self.names[layer] = (stored,)
                return self.build.parameter(numbers.shape, dtype, layer)
        if numbers.size > _INLINE and produced is not None and produced[0].kind != "Constant" and len(set(numbers.flat)) > 1:
            self._node(scope, produced[0])
            if (scope, name) in self.place.values:
                return self.place.values[scope, name]
        self._written_out.update(self._names_of[tensor] for tensor in sources(scope, name) if tensor in self._names_of)
        return SourceTensor(numbers.shape, dtype, name, numbers=numbers)

    @cached_property
    def _names_of(self) -> Mapping[StoredNumbers, str]:
        """The arrays of no layer, by the numbers that the file stores."""
        claimed = {name for unit in self._by_name.values() if unit.title != "array" for name in unit.arrays}
        return {tensor: name for name, value in self.work.values.items() if name not in claimed for tensor in sources(*value)}

    def give(self, scope: Scope, name: str, tensor: SourceTensor) -> None:
        """Note what a value is."""
        self.place.values[scope, name] = tensor

    def attributes(self, scope: Scope, node: Operation) -> Mapping[str, Any]:
        """Return a node's attributes. Raises RefusedError for graphs among them."""
        values = scope.values(node)
        if values is None:
            raise self.build.refuse(f"a node {node.kind} with a graph or a list of tensors in it", "no line is known for it")
        return values

    def integers(self, op: Op, name: str, index: int) -> list[int] | None:
        """Return a list of whole numbers that is an attribute in old operator sets and an input in new ones; None without one."""
        x = op.optional(index)
        if x is None:
            stated = op.values.get(name)
            return None if stated is None else [int(n) for n in (stated if isinstance(stated, list) else [stated])]
        numbers = self.constant(x, name).reshape(-1).tolist()
        if any(isinstance(n, Size) for n in numbers):
            raise self.build.refuse(f"{name} that a run decides", "only numbers that the file states are known here")
        return [int(n) for n in numbers]

    def constant(self, x: SourceTensor, what: str) -> Array:
        """Return the numbers of a tensor. Raises RefusedError for one that a run decides."""
        if x.numbers is None:
            raise self.build.refuse(f"{what} that a run decides", "only numbers that the file states are known here")
        return x.numbers

    def _asks(self, word: str) -> bool:
        """Return whether a caller may state something of the models of this format."""
        return word in getattr(registry.named("scaffold_from").get(self.work.checkpoint.format), "ASKS", ())

    def closing(self) -> str:
        """Return the way out where open lengths of the model's inputs decide something: to state them; "" where none is open."""
        return open_lengths(value.shape for value in self.build.scope.inputs if value.shape) if self._asks("axes") else ""

    def lengths(self, x: SourceTensor) -> list[Dim]:
        """Return the lengths that a tensor holds. Raises RefusedError where a run decides them by other than shapes."""
        return [n if isinstance(n, Size) else int(n) for n in self.constant(x, "a shape").reshape(-1)]


def describe_file(path: Path, format: str, model: Callable[[Checkpoint], ProgramModel], partial: bool) -> Description:
    """Return the main graph of a file of a format.

    model  makes a program of what the format's adapter read

    Raises RefusedError where an operation is not used as it asks; and as `describe` does.
    """
    return describe(model(with_graph(path, format)), "", partial)


def with_graph(path: Path, format: str) -> Checkpoint:
    """Return a file whose graph is read. Raises RefusedError where an operation is not used as it asks."""
    checkpoint = load_with(path, format, Options())
    if checkpoint.read is None:
        raise RefusedError("its graph", "a model of layers", "an operator is not used as it asks")
    return checkpoint


def describe(
    work: ProgramModel, title: str, partial: bool = False, axes: StatedAxes = (), fix: FixedInputs = MappingProxyType({})
) -> Description:
    """Return the model of a program; `partial` leaves out the operations that are not known.

    title  what the file calls it, or ""
    axes   how many axes each input has that does not state it, or their lengths: one entry for all, or one for each
    fix    the values of inputs that are fixed, by their names

    Raises RefusedError for an operation or a setting that is not known, with its place; UsageError for other numbers of axes than the
    program asks for.
    """
    model = work.model(work.checkpoint.path)
    fixed = _fixed(work, fix) if fix else {}
    lengths = lengths_of(work, axes)
    ranks = {name: len(each) for name, each in lengths.items()}
    description = ReadingBudget().read(
        lambda needs: GraphReading(work, model.units, title or "model", needs, partial, ranks).description(fixed), _needed(work, lengths)
    )
    if description is None:
        raise RefusedError("its open lengths", "a model written as code", "its layers ask for several lengths of one axis", "", "")
    rounded = [str(note) for note in work.checkpoint.warnings if isinstance(note, LayerNote) and note.kind == INTEGERS]
    going_on = [name for name, placed in work.read.calls.items() if placed.continues]
    anew = [f"{name} goes on from one call to the next in its file; what is written begins every call with zeros" for name in going_on]
    return replace(
        description,
        notes=(*description.notes, *work.notes, *rounded, *anew, *assumptions(work.checkpoint.questions)),
        continues=bool(going_on),
        integers=description.integers or bool(rounded),
    )


def _fixed(work: ProgramModel, fix: FixedInputs) -> dict[str, Array]:
    """Make constants of inputs, and return their values by their names. Raises UsageError for values that they cannot have."""
    main, declared = work.read.scopes[0], work.declared
    inputs = {work.input_name(name): declared.get(name) or Declared(name) for name in work.reads if main.constant(name) is None}
    check_fixed(fix, list(inputs))
    fixed = {name: as_array(name, value, inputs[name].dtype, inputs[name].dims) for name, value in fix.items()}
    main.fix({inputs[name].name: array for name, array in fixed.items()})
    for scope in work.read.scopes:
        scope.forget()
    return fixed


def lengths_of(work: ProgramModel, axes: StatedAxes) -> dict[str, tuple[int | None, ...]]:
    """Return the caller's lengths of inputs by their names. Raises UsageError for others than there are."""
    main = work.read.scopes[0]
    stated = {name for name, value in work.declared.items() if value.dims is not None}
    numbers = {name for name, value in work.declared.items() if value.dims is not None and not list(value.dims)}  # they have no axes
    inputs = [name for name in work.reads if main.constant(name) is None and name not in numbers]
    return stated_ranks(axes, [name for name in inputs if name not in stated], inputs)


def _needed(work: ProgramModel, lengths: Mapping[str, Sequence[int | None]]) -> dict[str, Dim | str]:
    """Return the caller's lengths by the words of the open axes. Raises UsageError where the file states others."""
    needs = dict(of_axes(lengths))
    for name, each in lengths.items():
        dims = work.declared[name].dims if name in work.declared else None
        if dims is None:
            continue
        fits = len(dims) == len(each) and all(
            length in (None, dim) for dim, length in zip(dims, each, strict=True) if isinstance(dim, int) and dim > 0
        )
        words = {f"{name}, axis {axis}": dim for axis, dim in enumerate(dims) if isinstance(dim, str) and dim}
        if not fits or any(needs.get(words[key], needs[key]) != needs[key] for key in words.keys() & needs.keys()):
            text = "x".join("?" if dim is None else str(dim) for dim in dims)
            raise UsageError(f"{Flag('axes')} states other axes of {name} than the file, whose are {text}. State the open ones alone")
        needs |= {word: needs[key] for key, word in words.items() if key in needs}
    return needs


# Names that a person would give the layers of an ONNX graph.

_MADE_UP = re.compile(r"StatefulPartitionedCall|.*_Inline_.*|F\d+::.*|.*::.*|while|body|model_\d+|sequential(_\d+)?|functional(_\d+)?")
"""Parts of names that tell how a graph was made, and not what it is."""
_OPERATOR = re.compile(
    r"(LSTM|GRU|RNN|MatMul|Gemm|Conv|ConvTranspose|BiasAdd|Tensordot|Add|Gather|GatherV2|embedding_lookup|ReadVariableOp(:0)?|Y|Mul|Conv2D"
    r"|Conv1D|LayerNormalization|BatchNormalization|FusedBatchNormV3|ExpandDims|resource:0|weight)(_\d+|__\d+)*"
)
"""Ends of names that repeat what a layer is."""


def layer_names(units: Sequence[Unit]) -> dict[str, str]:
    """Return the name that a person would give each layer: of its module or its node, without what exporters put around it."""
    paths = {unit.name: [part for part in re.split(r"[/.]+", unit.known_as) if part and not _MADE_UP.fullmatch(part)] for unit in units}
    while (
        len(paths) > 1
        and len({path[0] if len(path) > 1 else "" for path in paths.values()}) == 1
        and all(len(path) > 1 for path in paths.values())
    ):
        paths = {name: path[1:] for name, path in paths.items()}
    names, free = {}, Names()
    for unit in units:
        path = paths[unit.name]
        while len(path) > 1 and _OPERATOR.fullmatch(path[-1]):
            path = path[:-1]
        names[unit.name] = free.new(".".join(path) or unit.title.split("(")[0].lower() or "layer")
    return names
