"""A frozen graph in the common operations: its while loops as Loops, its functions in place of their calls.

Loops are TensorFlow 1's (Enter, Merge, Switch, NextIteration, Exit), and While with functions. A list of tensors that is
read or written element by element is its elements as one tensor.

Sources: tensorflow/core/ops/{control_flow_ops,functional_ops,list_ops,data_flow_ops}.cc; python/ops/while_v2.py; Keras's
backend.rnn (keras/src/backend/tensorflow/rnn.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import numpy as np

from rnnconvert.containers.graph_def import WHILES, GraphDef, GraphDefFunction
from rnnconvert.containers.graph_def_node import GraphDefNode
from rnnconvert.containers.tensor_bundle import TYPES
from rnnconvert.core.arrays import Array
from rnnconvert.core.limits import FUNCTION_NESTING, WRITTEN_OPERATIONS
from rnnconvert.core.names import is_count
from rnnconvert.formats.tensorflow1.control_flow import Conditions, Frames
from rnnconvert.formats.tensorflow1.operations import CELLS, DOMAIN, PASSING, OperationStep
from rnnconvert.graphs.graph import Dims
from rnnconvert.graphs.program.lowering import OPSET, Block, LoopLowering, Variable
from rnnconvert.graphs.program.operations import Body, Declared, Program


@dataclass(eq=False)
class _Space:
    """Operations and the names by which they know values: the graph's own, or a function's.

    nodes   the operations by name
    values  values that others give: arguments, states of a loop
    block   the graph that they are written into
    prefix  the beginning of their values' names there
    depth   how many functions are around
    gives   what a function gives
    """

    nodes: Mapping[str, GraphDefNode]
    values: dict[str, str]
    block: Block
    prefix: str = ""
    depth: int = 0
    gives: Sequence[str] = ()
    done: set[str] = field(default_factory=set)


@dataclass(eq=False)
class _LoopVariable:
    """A variable of a loop.

    before  its first value, and its type
    name    what the body calls it
    after   what the body gives for it
    final   the value that the loop gives; "" if nothing reads it
    """

    before: str
    kind: int
    name: str
    after: str
    final: str


class GraphDefLowering:
    """A graph on its way.

    arguments  the lengths of the axes of what is handed to a function, by its name: values that no operation gives
    """

    def __init__(self, graph: GraphDef, arguments: Mapping[str, Dims | None] = MappingProxyType({})) -> None:
        self.graph = graph
        self.arrays: dict[str, Array] = {}
        self.main = Block("", self.arrays)
        self.space = _Space(graph.nodes, dict(zip(arguments, arguments, strict=True)), self.main)
        self.inputs = [Declared(name, TYPES[1], None if dims is None else [*dims]) for name, dims in arguments.items()]
        self.stated: list[Declared] = []
        self.written = 0
        self.frames = Frames(graph)
        conditions = Conditions(graph)
        self.asked, self.draws = conditions.asked, conditions.draws
        # Their defaults drop something, which nothing writes: open, they are named as what a caller fixes.
        self.dropping = {name for name, _ in self.draws.values()}
        self.counts: dict[str, str] = {}  # what a loop leaves in a count of its steps, and the loop's name
        self.lists: dict[str, str] = {}  # the lists with an element of each step that a loop leaves
        self.lasts: set[str] = set()
        self._numbers_read: dict[int, dict[str, set[int]]] = {}

    def program(self, path: Path) -> Program:
        """Return the graph of a file."""
        for name in self.graph.nodes:
            if not self.frames.holds(name):
                self._write(self.space, name)
        read = {name for node in self.main.nodes for name in node.inputs}
        idle = self.lasts - read
        nodes = [node for node in self.main.nodes if not idle & set(node.outputs)]
        used = {name for node in nodes for name in node.inputs}
        ends = [name for node in nodes for name in node.outputs if name and name not in used and node.kind != "Loop"]
        inputs = [tensor.name for tensor in self.inputs]
        main = Body(nodes, inputs, ends, self.main.stored, [*self.inputs, *self.stated])
        return Program(path, main, {"": OPSET}, size=path.stat().st_size if path.is_file() else 0)

    # Operations ---------------------------------------------------------------------------------------------

    def value(self, source: str) -> str:
        """Return the name that a value of the graph has in the program."""
        return self._value(self.space, source)

    def _value(self, space: _Space, source: str) -> str:
        """Return the name that a value has in the new graph; its operation is written already."""
        if source in space.values:
            return space.values[source]
        name, number = _numbered(space.nodes, source)
        if ":" not in source and f"{name}:0" in space.values:
            return space.values[f"{name}:0"]
        key = f"{name}:{number}"
        if key in space.values:
            return space.values[key]
        return f"{space.prefix}{key}"

    def _write(self, space: _Space, name: str) -> None:
        """Write an operation, after all that it reads."""
        waiting = [(name, False)]
        entered: set[str] = set()
        while waiting:
            name, ready = waiting.pop()
            node = space.nodes.get(name)
            if name in space.done or node is None:
                continue
            if ready:
                space.done.add(name)
                self._write_node(space, node)
                continue
            if name in entered:
                continue
            entered.add(name)
            waiting.append((name, True))
            waiting += [(before, False) for before in self._before(space, node)]

    def _before(self, space: _Space, node: GraphDefNode) -> list[str]:
        """Return the operations that must be written before one."""
        if node.op == "Exit" and space is self.space:
            frame = self.frames.of(node)
            return [source.partition(":")[0] for enter in self.frames.enters(frame) for source in enter.inputs if source[:1] != "^"]
        names = []
        for source in node.inputs:
            name = source.partition(":")[0]
            if source.startswith("^") or source in space.values or (f"{name}:0" in space.values and ":" not in source):
                continue
            names.append(name)
        return names

    def _write_node(self, space: _Space, node: GraphDefNode) -> None:
        around, space.block.operator = space.block.operator, "a loop" if node.op == "Exit" else node.op
        self._write_operation(space, node)
        space.block.operator = around

    def _write_operation(self, space: _Space, node: GraphDefNode) -> None:
        self.written += 1
        if self.written > WRITTEN_OPERATIONS:
            raise OverflowError(f"its functions are more than {WRITTEN_OPERATIONS} operations")
        sources = node.read
        if node.op == "Const":
            array = node.tensor
            if array is not None:
                space.block.constant(array, f"{space.prefix}{node.name}:0", node.name)
            return
        if node.op in ("Placeholder", "PlaceholderV2") or node.name in self.dropping:
            self._placeholder(space, node)
            return
        if node.op == "Exit" and space is self.space:
            self._frame(node)
            return
        inputs = [self._value(space, source) for source in sources]
        outputs = [f"{space.prefix}{node.name}:{number}" for number in range(self._outputs(space, node))]
        if node.op in CELLS:  # of their many outputs, one that nothing reads would be one of the model's
            read = self._read_outputs(space).get(node.name, range(len(outputs)))
            outputs = [name if number in read else "" for number, name in enumerate(outputs)]
        if space is self.space and (asked := self.asked.get(node.name)):
            opened = [name for name in asked if self.graph.nodes[name].op != "PlaceholderWithDefault"]
            space.block.add("If", [f"{(opened or asked)[0]}:0", *inputs], outputs, node.name)
            return
        if node.op == "RandomUniform" and node is self.graph.nodes.get(node.name) and node.name in self.draws:
            name, nothing = self.draws[node.name]  # read, so that whoever refuses what is drawn can name it
            kind = TYPES.get(int(self.graph.nodes[name].number("dtype", 1)), TYPES[1])
            inputs.append(space.block.add("Equal", [f"{name}:0", space.block.constant(np.array(nothing, kind))]))
        if node.op in WHILES and space.block is self.main:
            self._while(node, inputs, outputs)
            return
        if node.op in ("PartitionedCall", "StatefulPartitionedCall") and space.depth < FUNCTION_NESTING:
            function = self.graph.functions.get(node.called("f"))
            if function is not None and len(function.inputs) == len(inputs):
                results = self._call(function, inputs, space.block, f"{space.prefix}{node.name}/", space.depth + 1)
                for name, value in zip(outputs, results, strict=False):
                    space.block.add("Identity", [value], [name])
                return
        if node.op in _ARRAYS and (node.op not in _BY_PLACE or self._in_order(space, sources[1])):
            operands = _ARRAYS[node.op]
            inputs = [inputs[index] for index in operands if index < len(inputs)]
            operator = "Gather" if node.op == "TensorArrayReadV3" else "Identity"
            if operator == "Gather" and space is self.space and self._is_last(sources[1], inputs):
                self.lasts.add(inputs[0])
                inputs[0] = self.main.constant(np.array(-1, np.int64))
            space.block.add(operator, inputs[::-1] if operator == "Gather" else inputs, outputs, node.name)
            return

        def numbers(index: int) -> Array | None:
            return self._numbers(space, sources[index]) if index < len(sources) else None

        if node.op == "TensorListFromTensor" and space.block is self.main:
            self._learn(space, sources[0], numbers(1))
        OperationStep(space.block, node, inputs, outputs, numbers).write()

    def _learn(self, space: _Space, source: str, shape: Array | None) -> None:
        """Note the axes of a sequence that becomes a list: the list states the axes of its elements, and its maker may state its length."""
        if shape is None or shape.ndim != 1 or shape.dtype.kind != "i" or shape.size > _AXES:
            return
        dims = [None, *(None if length < 0 else int(length) for length in shape)]
        maker = space.nodes.get(source.partition(":")[0])
        stated = None if maker is None else maker.shape("_output_shapes")
        if stated is not None and len(stated) == len(dims) and stated[0] > 0:
            dims[0] = stated[0]
        self._state(self._value(space, source), dims)
        turned = maker.read[0] if maker is not None and maker.op == "Transpose" and maker.read else ""
        before = space.nodes.get(turned.partition(":")[0])
        axes = None if before is None else before.shape("_output_shapes")
        if axes and turned.rpartition(":")[2] in ("0", turned):
            self._state(self._value(space, turned), [None if length < 0 else length for length in axes])

    def _state(self, value: str, dims: list[int | None]) -> None:
        if value not in {declared.name for declared in (*self.inputs, *self.stated)}:
            self.stated.append(Declared(value, TYPES[1], [*dims]))

    def _numbers(self, space: _Space, source: str, depth: int = 0) -> Array | None:
        """Return the stored numbers that a value is; an order of axes may be put together, and the kernel of a convolution have an
        axis more."""
        for _ in range(FUNCTION_NESTING):
            name = source.partition(":")[0]
            handed = space.values.get(source) or space.values.get(f"{name}:0")
            if handed is not None and space is not self.space:
                space, source, name = self.space, handed, handed.partition(":")[0]
            node = space.nodes.get(name)
            if node is not None and node.op in _ORDERS and depth < FUNCTION_NESTING:
                parts = [self._numbers(space, operand, depth + 1) for operand in node.read]
                return _order(node.op, [part for part in parts if part is not None], len(parts))
            if node is None or (node.op not in PASSING and node.op != "Const"):
                return None
            if node.op == "Const":
                return node.tensor
            source = next(iter(node.read), "")
        return None

    def _is_last(self, source: str, inputs: Sequence[str]) -> bool:
        """Return whether an index is the count of a loop's steps less 1, and the list is one that this loop fills."""
        node = self.graph.nodes.get(source.partition(":")[0])
        if node is None or node.op != "Sub" or len(node.read) != 2 or len(inputs) != 2:
            return False
        less = self._numbers(self.space, node.read[1])
        loop = self.counts.get(self._value(self.space, node.read[0]), "")
        return bool(loop) and less is not None and less.size == 1 and int(less.reshape(())) == 1 and self.lists.get(inputs[1]) == loop

    def _in_order(self, space: _Space, source: str) -> bool:
        """Return whether places in a list are those from the first on, one after another."""
        node = space.nodes.get(self._passed(space, source).partition(":")[0])
        sources = node.read if node is not None else ()
        if node is None or node.op != "Range" or len(sources) != 3:
            return False
        numbers = [self._numbers(space, place) for place in (sources[0], sources[2])]
        return [number is not None and number.size == 1 and int(number.reshape(())) for number in numbers] == [0, 1]

    def _single(self, variable: _LoopVariable) -> bool:
        """Return whether a variable is a list of one element."""
        source = self._length(variable)
        size = self._numbers(self.space, source) if source else None
        return size is not None and size.size == 1 and int(size.reshape(())) == 1

    def _length(self, variable: _LoopVariable) -> str:
        """Return what states the length with which a list is made; "" for other variables."""
        node = self.graph.nodes.get(variable.before.rpartition(":")[0])
        place = {"TensorListReserve": 1, "TensorArrayV3": 0}.get(node.op if node is not None else "")
        return node.read[place] if node is not None and place is not None and place < len(node.read) else ""

    def _size(self, variable: _LoopVariable) -> list[str]:
        """Return the value of how long a list is; nothing for other variables."""
        source = self._length(variable)
        if source:
            self._write(self.space, source.partition(":")[0])
        return [self._value(self.space, source)] if source else []

    def _outputs(self, space: _Space, node: GraphDefNode) -> int:
        """Return how many values an operation gives, as far as that matters."""
        if node.op in ("Split", "SplitV"):
            return max(1, min(int(node.number("num_split", 1)), _OUTPUTS))
        if node.op == "Unpack":
            return max(1, min(int(node.number("num", 1)), 100_000))
        if node.op in WHILES:
            return len(node.read)
        if node.op in ("PartitionedCall", "StatefulPartitionedCall"):
            function = self.graph.functions.get(node.called("f"))
            return len(function.outputs) if function is not None else 1
        if space is self.space or node.op in CELLS:
            return max(self._read_outputs(space).get(node.name, (0,))) + 1
        return 2 if node.op in ("TensorArrayV3", "Switch", "Merge") else 1

    def _read_outputs(self, space: _Space) -> Mapping[str, set[int]]:
        """Return the numbers of the outputs that are read, by the name of the operation."""
        if id(space.nodes) not in self._numbers_read:
            numbers: dict[str, set[int]] = {}
            for source in (*(source for node in space.nodes.values() for source in node.read), *space.gives):
                name, number = _numbered(space.nodes, source)
                numbers.setdefault(name, set()).add(min(number, _OUTPUTS - 1))
            self._numbers_read[id(space.nodes)] = numbers
        return self._numbers_read[id(space.nodes)]

    def _placeholder(self, space: _Space, node: GraphDefNode) -> None:
        name = f"{space.prefix}{node.name}:0"
        dims = node.shape("shape")
        dtype = TYPES.get(int(node.number("dtype", 1)), TYPES[1])
        dims = [] if dims is None and any(node.name in names for names in (self.dropping, *self.asked.values())) else dims
        shape = None if dims is None else [f"{node.name} {axis}" if length < 0 else length for axis, length in enumerate(dims)]
        self.inputs.append(Declared(name, dtype, shape))

    def _call(self, function: GraphDefFunction, inputs: Sequence[str], block: Block, prefix: str, depth: int) -> list[str]:
        """Write the operations of a function; return the values that it gives."""
        values = dict(zip(function.inputs, inputs, strict=True))
        space = _Space(function.nodes, values, block, prefix, depth, function.outputs)
        for source in function.outputs:
            self._write(space, source.partition(":")[0])
        return [self._value(space, source) for source in function.outputs]

    # Loops --------------------------------------------------------------------------------------------------

    def _while(self, node: GraphDefNode, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        body, ends = (self.graph.functions.get(node.called(key)) for key in ("body", "cond"))
        if body is None or ends is None or not ends.outputs or {len(body.inputs), len(body.outputs), len(ends.inputs)} != {len(inputs)}:
            self.main.add(node.op, inputs, outputs, node.name, domain=DOMAIN)
            return
        kinds = node.integers("T")
        kinds = kinds if len(kinds) == len(inputs) else [1] * len(inputs)
        prefix = f"{node.name}/body/"
        states = [f"{prefix}state_{number}" for number in range(len(inputs))]
        inside = _Space(body.nodes, {}, self.main)
        fixed = [self._passed(inside, after) == argument for argument, after in zip(body.inputs, body.outputs, strict=True)]
        for before, final, is_fixed in zip(inputs, outputs, fixed, strict=True):
            if is_fixed:  # a value of the graph around the loop, which each step only hands on
                self.main.add("Identity", [before], [final])
        handed = [before if is_fixed else state for before, state, is_fixed in zip(inputs, states, fixed, strict=True)]
        every = [_LoopVariable(*fields) for fields in zip(inputs, kinds, states, body.outputs, outputs, strict=True)]
        variables = [variable for variable, is_fixed in zip(every, fixed, strict=True) if not is_fixed]

        def step(block: Block) -> _Space:
            space = _Space(body.nodes, dict(zip(body.inputs, handed, strict=True)), block, prefix, 1, body.outputs)
            for source in body.outputs:
                self._write(space, source.partition(":")[0])
            return space

        def going(values: Sequence[str], block: Block, name: str) -> str:
            changing = iter(values)
            arguments = [before if is_fixed else next(changing) for before, is_fixed in zip(inputs, fixed, strict=True)]
            return self._call(ends, arguments, block, f"{node.name}/{name}/", 1)[0]

        self._loop(node.name, variables, step, going)

    def _frame(self, end: GraphDefNode) -> None:
        """Write a loop of TensorFlow 1's kind, when one of the values that it gives is read."""
        name = self.frames.of(end)
        inside = self.frames.inside(name)
        others = self.frames.exits(name)
        for node in others:
            self.space.done.add(node.name)
        finals = {node.inputs[0].partition(":")[0]: f"{node.name}:0" for node in others if node.inputs}
        parts = self.frames.parts(name)
        if parts is None:
            entered = [self._value(self.space, enter.inputs[0]) for enter in self.frames.enters(name) if enter.inputs]
            self.main.add("Loop", entered, list(finals.values()), name, domain=DOMAIN)
            return
        merges, switches, condition = parts
        prefix = f"{name}/body/"
        variables, state_values = [], {}
        for number, merge in enumerate(merges):
            enter, again = (inside[source.partition(":")[0]] for source in merge.inputs[:2])
            switch = switches.get(merge.name, "")
            state = f"{prefix}state_{number}"
            before = self._value(self.space, enter.inputs[0])
            variables.append(_LoopVariable(before, int(merge.number("T", 1)), state, again.inputs[0], finals.get(switch, "")))
            state_values[f"{switch}:1"] = state
        constant = {
            f"{enter.name}:0": self._value(self.space, enter.inputs[0])
            for enter in self.frames.enters(name)
            if not any(enter.name == merge.inputs[0].partition(":")[0] for merge in merges)
        }

        def step(block: Block) -> _Space:
            space = _Space(self.graph.nodes, {**state_values, **constant}, block, prefix, 1)
            for variable in variables:
                self._write(space, variable.after.partition(":")[0])
            return space

        def going(values: Sequence[str], block: Block, local: str) -> str:
            values_there = {f"{merge.name}:0": value for merge, value in zip(merges, values, strict=True)}
            space = _Space(self.graph.nodes, {**values_there, **constant}, block, f"{name}/{local}/", 1)
            self._write(space, condition.partition(":")[0])
            return self._value(space, condition)

        self._loop(name, variables, step, going)

    def _loop(
        self,
        name: str,
        variables: Sequence[_LoopVariable],
        step: Callable[[Block], _Space],
        going: Callable[[Sequence[str], Block, str], str],
    ) -> None:
        """Write a loop: a Loop with the variables that change, and what it collects at each step."""
        block = Block(f"{name}/body/", self.arrays)
        space = step(block)
        after = [self._value(space, variable.after) for variable in variables]
        states: list[tuple[_LoopVariable, str]] = []
        collected: list[tuple[str, str]] = []
        sizes: list[str] = []
        single: list[tuple[_LoopVariable, str]] = []
        counters = {variable.name for variable in variables if self._counts(space, variable)}
        self.counts |= {variable.final: name for variable in variables if variable.final and variable.name in counters}
        for variable, value in zip(variables, after, strict=True):
            item = self._collected(space, variable, counters)
            if item is None:
                states.append((variable, value))
            elif item[1]:
                collected.append((item[0], variable.final))
                sizes += self._size(variable)
                self.lists[variable.final] = name
            else:
                single.append((variable, item[0]))
        begins = going([variable.before for variable in variables], self.main, "first")
        goes_on = going(after, block, "next")

        def variables_of(part: Sequence[tuple[_LoopVariable, str]]) -> list[Variable]:
            return [Variable(variable.before, TYPES.get(variable.kind), variable.name, value, variable.final) for variable, value in part]

        LoopLowering(name, begins, goes_on, variables_of(states), variables_of(single), collected, sizes=sizes).write(self.main, block)

    def _counts(self, space: _Space, variable: _LoopVariable) -> bool:
        """Return whether a variable is the number of the step: 0, 1, 2 and so on."""
        first = self.arrays.get(variable.before)
        node = space.nodes.get(self._passed(space, variable.after).partition(":")[0])
        if first is None or first.size != 1 or first.any() or node is None or node.op not in ("Add", "AddV2"):
            return False
        sources = node.read
        steps = [self._numbers(space, source) for source in sources]
        own_sources = [self._origin(space, source) == variable.name for source in sources]
        return sorted(own_sources) == [False, True] and any(
            step is not None and step.size == 1 and step.dtype.kind == "i" and int(step.reshape(())) == 1 for step in steps
        )

    def _passed(self, space: _Space, source: str) -> str:
        for _ in range(FUNCTION_NESTING):
            node = space.nodes.get(source.partition(":")[0])
            if node is None or node.op not in PASSING or not node.inputs:
                break
            source = node.inputs[0]
        return source

    def _collected(self, space: _Space, variable: _LoopVariable, counters: set[str]) -> tuple[str, bool] | None:
        """Return the value that a loop puts into a list at each step, and whether each element has a separate place.

        None for any other variable.
        """
        source = variable.after
        for _ in range(FUNCTION_NESTING):
            node = space.nodes.get(source.partition(":")[0])
            sources = node.read if node is not None else ()
            if node is None or node.op not in (*PASSING, *_WRITES) or not sources:
                return None
            if node.op in _WRITES:
                array, index, item = (sources[at] for at in _WRITES[node.op])
                if self._origin(space, array) != variable.name:
                    return None
                fixed = self._numbers(space, index)
                if fixed is None and self._origin(space, index) not in counters:
                    return None
                if fixed is not None and (fixed.any() or not self._single(variable)):
                    return None
                return self._value(space, item), fixed is None
            source = sources[0]
        return None

    def _origin(self, space: _Space, source: str) -> str:
        """Return the value that an operation passes on."""
        for _ in range(FUNCTION_NESTING):
            node = space.nodes.get(source.partition(":")[0])
            if node is None or node.op not in PASSING or self._value(space, source) in space.values.values():
                break
            source = node.inputs[0]
        return self._value(space, source)


def _numbered(nodes: Mapping[str, GraphDefNode], source: str) -> tuple[str, int]:
    """Return the operation that gives a value, and which of its outputs that is: "node:1", or in functions "node:name of the output:0"."""
    name, *rest = source.split(":")
    named = _NAMED_OUTPUTS.get(nodes[name].op, ()) if len(rest) == 2 and name in nodes else ()
    if rest and rest[0] in named:
        return name, named.index(rest[0])
    return name, int(rest[-1]) if rest and is_count(rest[-1]) else 0


def _order(op: str, parts: Sequence[Array], expected: int) -> Array | None:
    """Return the output of an ExpandDims, or the axes that a Range or a ConcatV2 of whole numbers gives; None for anything else."""
    if op == "ExpandDims" and len(parts) == expected == 2 and parts[1].size == 1 and parts[1].dtype.kind == "i":
        place = int(parts[1].reshape(()))
        return np.expand_dims(parts[0], place) if -parts[0].ndim <= place + 1 <= parts[0].ndim + 1 else None
    if len(parts) != expected or any(part.dtype.kind != "i" or part.ndim > 1 or part.size > _AXES for part in parts):
        return None
    if op == "ConcatV2":
        *values, axis = parts
        return np.concatenate(values) if values and axis.ndim == 0 and all(value.ndim for value in values) else None
    if len(parts) != 3 or any(part.ndim for part in parts) or not parts[2]:
        return None
    counting = range(int(parts[0]), int(parts[1]), int(parts[2]))
    return np.array(counting, parts[0].dtype) if len(counting) <= _AXES else None


_OUTPUTS = 1000
"""The most outputs of an operation, but for one that takes a sequence apart."""
_ORDERS = ("Range", "ConcatV2", "ExpandDims")
_AXES = 16
"""The most axes of an order that is put together."""
_WRITES = {"TensorListSetItem": (0, 1, 2), "TensorArrayWriteV3": (3, 1, 2)}
"""Operations that put an element into a list: which of their inputs are the list, the place and the element."""
_ARRAYS = {"TensorListStack": (0,), "TensorArrayGatherV3": (2,), "TensorArrayReadV3": (1, 2), "TensorArrayScatterV3": (2,)}
"""Operations on lists whose elements lie one after another, and the inputs that matter: a list is its elements as one tensor."""
_BY_PLACE = ("TensorArrayGatherV3", "TensorArrayScatterV3")
"""Operations on lists that are given the places of their elements."""
_NAMED_OUTPUTS: Mapping[str, Sequence[str]] = {
    **dict.fromkeys(("LSTMBlockCell", "BlockLSTM"), ("i", "cs", "f", "o", "ci", "co", "h")),
    "GRUBlockCell": ("r", "u", "c", "h"),
    "TensorArrayV3": ("handle", "flow"),
}
"""The outputs of operations that have several, by their names in functions. Source: core/ops/{rnn_ops,data_flow_ops}.cc."""
