"""A whole model as C: NAME_step for one time step where the model can be computed so, and NAME_run for a sequence."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rnnconvert.formats.c_header.layer_code import StoredMatrix, comment
from rnnconvert.formats.c_header.program import MATRICES, Spelling, StepOperation, StepProgram, StepValues

MODEL_TAG = "rnnconvert-model:"
STORAGES = ("float32", "float64", "float16", "int8")


@dataclass(frozen=True)
class ModelPort:
    """An input or an output of a model.

    name   what the source calls it
    value  the number of the value that it is
    axes   its axes in the source: "batch", "time" or a length
    """

    name: str
    value: int
    axes: tuple[str | int, ...]


class _ValuePlaces:
    """Places of values in memory: where a value is not read any more, another one takes its place.

    sizes  of each place its time axis, None for numbers that are there once, and how many numbers it has at a step
    """

    def __init__(self) -> None:
        self.sizes: list[tuple[int | None, int]] = []
        self._free: set[int] = set()

    def take(self, axis: int | None, size: int) -> int:
        """Return a place for so many numbers."""
        alike = [slot for slot in self._free if self.sizes[slot][0] == axis]
        enough = [slot for slot in alike if self.sizes[slot][1] >= size]
        if not alike:
            self.sizes.append((axis, size))
            return len(self.sizes) - 1
        slot = min(enough, key=lambda each: (self.sizes[each][1], each)) if enough else max(alike, key=lambda each: self.sizes[each][1])
        self._free.discard(slot)
        self.sizes[slot] = axis, max(size, self.sizes[slot][1])
        return slot

    def release(self, slot: int) -> None:
        """Let another value have a place."""
        self._free.add(slot)


class WrittenModel:
    """A whole model as C.

    name      the stem of its functions' names
    program   the operations that it computes
    inputs    its inputs: the first values of the program
    outputs   its outputs
    storage   how the arrays of its layers are stored
    stateful  whether states last from one run to the next
    arrays    the arrays of the operations, by their names in C

    Raises ValueError for a loop whose step is not one.
    """

    def __init__(
        self,
        name: str,
        program: StepProgram,
        inputs: Sequence[ModelPort],
        outputs: Sequence[ModelPort],
        storage: str,
        stateful: bool,
        arrays: Mapping[str, StoredMatrix],
    ) -> None:
        self.name, self.program, self.inputs, self.outputs = name, program, inputs, outputs
        self.storage, self.stateful, self.arrays = storage, stateful, arrays
        self.dtype: np.dtype[Any] = np.dtype({"int8": "float32"}.get(storage, storage))
        self.real = "double" if storage == "float64" else "float"
        self._upper = name.upper()
        memory = program.memory()
        self._loops = program.loops(memory)
        self._memory = {id(program.operations[place]): f"{name}_kept_{of}" for place, of in memory.items()}
        self.why_no_step = self._why_no_step()
        self._xs = self._names("x", inputs)
        self._ys = self._names("y", outputs)

    @staticmethod
    def _names(letter: str, ports: Sequence[ModelPort]) -> list[str]:
        return [letter] if len(ports) == 1 else [f"{letter}_{number}" for number in range(len(ports))]

    # What it says of itself

    def described(self) -> dict[str, Any]:
        """Return the facts that a reader has to know."""
        return {
            "name": self.name,
            "storage": self.storage,
            "stateful": self.stateful,
            "inputs": [
                {"name": port.name, "axes": list(port.axes), "whole": value.integral, "size": value.size, "time": value.time}
                for port, value in zip(self.inputs, self.program.values, strict=False)
            ],
            "axes": [axis.length for axis in self.program.axes[: self._input_axes()]],
            "outputs": [{"name": port.name, "axes": list(port.axes), "value": port.value} for port in self.outputs],
            "calls": self._calls(),
            "operations": [[each.kind, list(each.reads), each.name, dict(each.settings)] for each in self.program.operations],
        }

    def _calls(self) -> dict[str, Any]:
        """Return how its functions are called.

        by_steps  whether there is a function for one step
        lengths   the names of the lengths that its function for a sequence is given
        inputs    for each the number of its length, or how many steps it has if that is stated
        outputs   in the order of the arguments, each with the macro for its number of steps
        order     which outputs these are
        """
        lengths = self._lengths()
        values, places = self.program.values, list(lengths)
        inputs = []
        for value in values[: len(self.inputs)]:
            root = self.program.root(value.time)
            length = places.index(root) if root in places else None
            inputs.append(
                {"size": value.size, "length": length, "steps": None if length is not None or root is None else self.program.length(root)}
            )
        order = self._argument_order()
        outputs = [{"size": values[self.outputs[number].value].size, "steps": self._steps_macro(number)} for number in order]
        return {"by_steps": not self.why_no_step, "lengths": [*lengths.values()], "inputs": inputs, "outputs": outputs, "order": order}

    def _argument_order(self) -> list[int]:
        """Return the outputs in the order of the functions' arguments: where there is one for a step, those with steps first."""
        timed = [self.program.values[port.value].time is not None for port in self.outputs]
        numbers = range(len(timed))
        return list(numbers) if self.why_no_step else sorted(numbers, key=lambda number: not timed[number])

    def _steps_macro(self, number: int) -> str:
        """Return the macro that says how many steps an output has; "" for one without."""
        timed = self.program.values[self.outputs[number].value].time is not None
        return f"{self._upper}_{self._ys[number].upper()}_STEPS" if timed else ""

    def _input_axes(self) -> int:
        """Return how many of the time axes are the inputs'."""
        return 1 + max([value.time for value in self.program.values[: len(self.inputs)] if value.time is not None], default=-1)

    def about(self) -> Iterator[str]:
        """Yield the comments of the header."""
        yield comment(f"{MODEL_TAG} {json.dumps(self.described(), sort_keys=True)}")
        yield comment(
            f"{self.name}: a whole model. Reads {self._ports(self.inputs, self._xs)}; gives {self._ports(self.outputs, self._ys)}."
        )
        for line in self._usage():
            yield comment(line)
        yield ""

    def _ports(self, ports: Sequence[ModelPort], names: Sequence[str]) -> str:
        words = []
        for port, name in zip(ports, names, strict=True):
            value = self.program.values[port.value]
            per = "at each step" if value.time is not None else "once"
            kind = "whole numbers" if value.integral else "numbers"
            words.append(f"{name} ({port.name}), {value.size} {kind} {per}")
        return "; ".join(words)

    def _usage(self) -> Iterator[str]:
        if not self.why_no_step:
            yield f"{self.name}_state state: all zeros (memset, or = {{0}}) where a sequence begins."
            yield f"{self.name}_step: one time step. What has no steps of its own is given for the sequence so far."
            yield f"{self.name}_run: so many steps, from the state on; at least one."
            return
        yield f"No function for one step: {self.why_no_step}."
        lengths = [f"{name}" for name in self._lengths().values()]
        yield (
            f"{self.name}_run: a whole sequence of at least one step. work: {self._upper}_WORK({', '.join(lengths) or '0'}) numbers of "
            f"the type {self.real}, which it overwrites."
        )

    def call(self, steps: int) -> Iterator[str]:
        """Yield lines of C that run a sequence of so many steps once, or of as many as the model fixes, on inputs of zeros."""
        values, lengths = self.program.values, self._lengths()
        several = f"({', '.join([str(steps)] * len(lengths))})" if lengths else ""
        for value, x, parameter in zip(values, self._xs, self._parameters(self.inputs, self._xs, False), strict=False):
            root = self.program.root(value.time)
            count = "" if root is None else f"{steps if root in lengths else self.program.length(root)} * "
            yield f"static {parameter.replace('*', '')}[{count}{self._upper}_{x.upper()}_SIZE];"
        for number, (y, parameter) in enumerate(zip(self._ys, self._parameters(self.outputs, self._ys, False), strict=True)):
            macro = self._steps_macro(number)
            yield f"static {parameter.replace('*', '')}[{f'{macro}{several} * ' if macro else ''}{self._upper}_{y.upper()}_SIZE];"
        places = [str(steps)] * len(lengths)
        if self.why_no_step:
            yield f"static {self.real} work[{self._upper}_WORK{several}];"
            yield f"{self.name}_run({', '.join([*self._xs, *places, 'work', *self._ys])});"
        else:
            yield f"static {self.name}_state state;  // zeros, where a sequence begins"
            results = [self._ys[number] for number in self._argument_order()]
            yield f"{self.name}_run({', '.join([*self._xs, str(steps), '&state', *results])});"

    @property
    def notes(self) -> list[str]:
        """The notes for the user."""
        if self.why_no_step:
            return [f"{self.name}_run alone, and no {self.name}_step: {self.why_no_step}"]
        return [f"{self.name}_step computes one time step, {self.name}_run a sequence"]

    # Which form it has

    def _why_no_step(self) -> str:
        """Return why the model is not computed step by step; "" where it is."""
        program = self.program
        times = {program.root(value.time) for value in program.values[: len(self.inputs)]} - {None}
        if not times:
            return "it reads no sequence"
        if len(times) > 1:
            return "its inputs have steps of their own"
        ended = self._ended()
        for operation in program.operations:
            kind = self.program.kinds[operation.kind]
            form = kind.form(operation.settings)
            if form in ("whole", "reversed"):
                return f"{operation.name or operation.kind} {kind.why}"
            timed = any(program.values[number].time is not None for number in operation.reads)
            if timed and any(number in ended for number in operation.reads):
                return f"{operation.name or operation.kind} reads what comes of a whole sequence"
        return ""

    def _ended(self) -> set[int]:
        """Return the values without steps that depend on a sequence."""
        ended: set[int] = set()
        for operation in self.program.operations:
            values = self.program.values
            depends = any(number in ended or values[number].time is not None for number in operation.reads)
            if depends:
                ended.update(number for number in operation.gives if values[number].time is None)
        return ended

    def _afterwards(self) -> list[StepOperation]:
        """Return the operations whose results are needed after the last step alone."""
        ended, values = self._ended(), self.program.values
        return [
            each
            for each in self.program.operations
            if all(values[number].time is None for number in (*each.reads, *each.gives)) and any(number in ended for number in each.reads)
        ]

    # Code

    def code(self) -> Iterator[str]:
        """Yield its arrays and functions."""
        for name, stored in self.arrays.items():
            yield from stored.definitions(name, self.dtype)
        yield ""
        for port, word in [*zip(self.inputs, self._xs, strict=True), *zip(self.outputs, self._ys, strict=True)]:
            yield f"#define {self._upper}_{word.upper()}_SIZE {self.program.values[port.value].size}"
        lengths = self._lengths()
        arguments = f"({', '.join(lengths.values())})" if lengths else ""
        for number, port in enumerate(self.outputs):
            if macro := self._steps_macro(number):
                yield f"#define {macro}{arguments} {self._length(self.program.values[port.value].time, lengths, False)}"
        for number, operation in enumerate(self.program.operations):
            fields = self._keeps(operation)
            if fields:
                yield f"typedef struct {{ {' '.join(fields)} }} {self.name}_kept_{number};"
        yield from self._by_runs() if self.why_no_step else self._by_steps()

    def _writing(self, operation: StepOperation) -> Spelling:
        return Spelling(self.real, self.storage, operation.name)

    def _read(self, operation: StepOperation) -> list[StepValues]:
        return [self.program.values[number] for number in operation.reads]

    def _keeps(self, operation: StepOperation) -> list[str]:
        kind = self.program.kinds[operation.kind]
        if kind.keeps is None or id(operation) not in self._memory:
            return []
        return list(kind.keeps(self._writing(operation), operation.settings, self._read(operation)))

    def _body(self, operation: StepOperation) -> Iterator[str]:
        return self.program.kinds[operation.kind].code(self._writing(operation), operation.settings, self._read(operation))

    def _parameters(self, ports: Sequence[ModelPort], names: Sequence[str], inputs: bool) -> list[str]:
        words = []
        for port, name in zip(ports, names, strict=True):
            kind = "int32_t" if self.program.values[port.value].integral else self.real
            words.append(f"{'const ' if inputs else ''}{kind} *{name}")
        return words

    def _last_reads(self, order: Sequence[StepOperation]) -> dict[int, int]:
        """Return the place in an order of the operation that reads a value last; behind all for outputs."""
        reads = {number: place for place, operation in enumerate(order) for number in operation.reads}
        return {**reads, **{port.value: len(order) for port in self.outputs}}

    def _slots(
        self, order: Sequence[StepOperation], direct: Mapping[int, str], axes: bool, lasting: Collection[int] = ()
    ) -> tuple[_ValuePlaces, dict[int, int]]:
        """Return places for the values that have none of their own.

        direct   values that are inputs or outputs of a function
        axes     whether a value has a place for all of its steps
        lasting  values whose place no other one takes
        """
        slots, places = _ValuePlaces(), dict[int, int]()
        last = {**self._last_reads(order), **dict.fromkeys(lasting, len(order))}
        for place, operation in enumerate(order):
            for number in operation.gives:
                if number not in direct:
                    value = self.program.values[number]
                    places[number] = slots.take(self.program.root(value.time) if axes else None, value.size)
            for number in {*operation.reads, *operation.gives}:
                if number in places and last.get(number, -1) <= place:
                    slots.release(places[number])
        return slots, places

    def _block(self, operation: StepOperation, pointers: Mapping[int, str], kept_in: str = "state->") -> Iterator[str]:
        """Yield an operation's code, with pointers to what it reads and gives.

        kept_in  what stands before the name of what it keeps from step to step
        """
        yield f"    {{ {comment(operation.name or operation.kind)}"
        yield from (f"        {line}" for line in self._pointers(operation, pointers))
        if memory := self._memory.get(id(operation)):
            yield f"        {memory} *s = &{kept_in}{memory.removeprefix(self.name + '_')};"
        yield from (f"        {line}" for line in self._body(operation))
        yield "    }"

    def _pointers(self, operation: StepOperation, pointers: Mapping[int, str]) -> Iterator[str]:
        for index, number in enumerate(operation.reads):
            kind = "int32_t" if self.program.values[number].integral else self.real
            yield f"const {kind} *x{index} = {pointers[number]};"
        for index, number in enumerate(operation.gives):
            yield f"{self.real} *y{index} = {pointers[number]};"

    def _copied(self, port: ModelPort, source: str, target: str, count: str = "") -> str:
        """Return the statement that gives an output that is also another value."""
        size = self.program.values[port.value].size
        if self.program.values[port.value].integral:
            total = f"{count} * {size}" if count else str(size)
            return f"    {{ size_t i; for (i = 0; i < {total}; i++) {target}[i] = ({self.real}){source}[i]; }}"
        return f"    memcpy({target}, {source}, {f'{count} * ' if count else ''}{size} * sizeof *{target});"

    # One step at a time

    def _by_steps(self) -> Iterator[str]:
        program, name, values = self.program, self.name, self.program.values
        after = self._afterwards()
        before = [each for each in program.operations if each not in after]
        timed = [(port, y) for port, y in zip(self.outputs, self._ys, strict=True) if values[port.value].time is not None]
        ended = [(port, y) for port, y in zip(self.outputs, self._ys, strict=True) if values[port.value].time is None]
        read = {number: x for number, x in enumerate(self._xs)}
        given_before = {number for each in before for number in each.gives}
        direct: dict[int, str] = dict(read)
        for port, y in timed:
            if port.value in given_before:
                direct.setdefault(port.value, y)
        later: dict[int, str] = {}
        for port, y in ended:
            if port.value not in given_before and port.value not in read:
                later.setdefault(port.value, y)
        lasting = given_before & {number for each in after for number in each.reads}  # a result may be asked for twice
        slots, places = self._slots([*before, *after], {**direct, **later}, axes=False, lasting=lasting)
        offsets = np.concatenate([[0], np.cumsum([size for _, size in slots.sizes])]).astype(int).tolist()
        pointers = {**direct, **{number: f"state->work + {offsets[slot]}" for number, slot in places.items()}}
        fields = [f"{name}_kept_{number} kept_{number};" for number, each in enumerate(program.operations) if self._keeps(each)]
        fields += [f"{self.real} work[{offsets[-1]}];"] if offsets[-1] else []
        yield f"typedef struct {{ {' '.join(fields) or 'int unused;'} }} {name}_state;"
        yield ""
        parameters = [*self._parameters(self.inputs, self._xs, True), f"{name}_state *state"]
        steps, results = (self._parameters([port for port, _ in some], [y for _, y in some], False) for some in (timed, ended))
        function = "advance" if ended else "step"
        yield f"static inline void {name}_{function}({', '.join([*parameters, *steps])}) {{"
        for each in before:
            yield from self._block(each, pointers)
        yield from (self._copied(port, pointers[port.value], y) for port, y in timed if direct.get(port.value) != y)
        yield from (f"    (void){x};" for number, x in enumerate(self._xs) if not any(number in each.reads for each in before))
        if not fields:
            yield "    (void)state;"
        yield "}"
        yield ""
        if ended:
            yield f"static inline void {name}_result({', '.join([f'{name}_state *state', *results])}) {{"
            with_later = {**pointers, **later}
            for each in after:
                yield from self._block(each, with_later)
            for port, y in ended:
                if later.get(port.value) != y:
                    yield self._copied(port, with_later[port.value], y)
            yield "}"
            yield ""
            yield f"static inline void {name}_step({', '.join([*parameters, *steps, *results])}) {{"
            yield f"    {name}_advance({', '.join([*self._xs, 'state', *(y for _, y in timed)])});"
            yield f"    {name}_result({', '.join(['state', *(y for _, y in ended)])});"
            yield "}"
            yield ""
        inputs = self._parameters(self.inputs, self._xs, True)
        yield f"static inline void {name}_run({', '.join([*inputs, 'size_t steps', f'{name}_state *state', *steps, *results])}) {{"
        yield "    size_t t;"
        moved = [f"{x} + t * {value.size}" if value.time is not None else x for x, value in zip(self._xs, values, strict=False)]
        moved_out = [f"{y} + t * {values[port.value].size}" for port, y in timed]
        yield f"    for (t = 0; t < steps; t++) {name}_{function}({', '.join([*moved, 'state', *moved_out])});"
        if ended:
            yield f"    {name}_result({', '.join(['state', *(y for _, y in ended)])});"
        yield "}"
        yield ""

    # A whole sequence

    def _lengths(self) -> dict[int, str]:
        """Return the names of the lengths of the inputs that a run decides, by their time axes."""
        roots = dict.fromkeys(self.program.root(value.time) for value in self.program.values[: len(self.inputs)])
        opened = [root for root in roots if root is not None and (not self.why_no_step or self.program.length(root) is None)]
        return {root: "steps" if len(opened) == 1 else f"steps_{number}" for number, root in enumerate(opened)}

    def _length(self, axis: int | None, lengths: Mapping[int, str], local: bool = True) -> str:
        """Return the length of a time axis as C: a number, or of lengths that are arguments."""
        root = self.program.root(axis)
        assert root is not None
        if root in lengths:
            return lengths[root] if local else f"((size_t)({lengths[root]}))"
        length = self.program.length(root)
        if length is not None:
            return f"(size_t){length}"
        entry = self.program.axes[root]
        assert entry.of is not None
        before = self._length(entry.of, lengths, local)
        if entry.pads is None:
            return f"(({before} + {entry.stride - 1}) / {entry.stride})"
        more = sum(entry.pads)
        longer, reach = f"{before} + {max(more, 0)}", entry.reach + max(-more, 0)
        several = f" * {entry.by}" if entry.by > 1 else ""
        return f"({longer} < {reach} ? 0 : (({longer} - {reach}) / {entry.stride} + 1){several})"

    def _by_runs(self) -> Iterator[str]:
        program, name, values = self.program, self.name, self.program.values
        lengths = self._lengths()
        direct = dict(enumerate(self._xs))
        for port, y in zip(self.outputs, self._ys, strict=True):
            direct.setdefault(port.value, y)
        # What a step of a loop overwrites, the next one may read: what its operations read or give keeps its place to the end.
        looped = [operation for span in self._loops for operation in program.operations[span.start : span.stop]]
        lasting = {number for operation in looped for number in (*operation.reads, *operation.gives)}
        slots, places = self._slots(program.operations, direct, axes=True, lasting=lasting)
        sizes = [f"{self._length(axis, lengths, False)} * {size}" if axis is not None else str(size) for axis, size in slots.sizes]
        arguments = ", ".join(lengths.values())
        yield f"#define {self._upper}_WORK{f'({arguments})' if arguments else ''} ({' + '.join(sizes) or '1'})"
        yield ""
        parameters = [
            *self._parameters(self.inputs, self._xs, True),
            *(f"size_t {word}" for word in lengths.values()),
            f"{self.real} *work",
        ]
        parameters += self._parameters(self.outputs, self._ys, False)
        yield f"static inline void {name}_run({', '.join(parameters)}) {{"
        before = "work"
        for number, (axis, size) in enumerate(slots.sizes):
            yield f"    {self.real} *const w{number} = {before};"
            before = f"w{number} + " + (f"{self._length(axis, lengths)} * {size}" if axis is not None else str(size))
        if not slots.sizes:
            yield "    (void)work;"
        pointers = {**direct, **{number: f"w{slot}" for number, slot in places.items()}}
        loops = {span.start: span for span in self._loops}
        place = 0
        while place < len(program.operations):
            span = loops.get(place, range(place, place + 1))
            operations = program.operations[span.start : span.stop]
            yield from self._looped(operations, pointers, lengths) if place in loops else self._over(operations[0], pointers, lengths)
            place = span.stop
        for port, y in zip(self.outputs, self._ys, strict=True):
            if direct[port.value] != y:
                time = values[port.value].time
                yield self._copied(port, pointers[port.value], y, "" if time is None else self._length(time, lengths))
        read = {number for each in program.operations for number in each.reads}
        yield from (f"    (void){x};" for number, x in enumerate(self._xs) if number not in read)
        used = " ".join([*(self._length(value.time, lengths) for value in values if value.time is not None)])
        yield from (f"    (void){word};" for word in lengths.values() if not re.search(rf"\b{word}\b", used))
        yield "}"
        yield ""

    def _looped(self, operations: Sequence[StepOperation], pointers: Mapping[int, str], lengths: Mapping[int, str]) -> Iterator[str]:
        """Yield the operations of a loop: what has no steps first, then the others at each step."""
        values, timed = self.program.values, list[StepOperation]()
        for operation in operations:
            if any(values[number].time is not None for number in (*operation.reads, *operation.gives)):
                timed.append(operation)
            else:
                yield from self._over(operation, pointers, lengths)
        memories = dict.fromkeys(self._memory[id(each)] for each in timed if id(each) in self._memory)
        places = {memory: f"in_{memory.removeprefix(self.name + '_')}" for memory in memories}
        yield f"    {{ {comment('a loop over the steps')}"
        yield from (f"        {memory} {place};" for memory, place in places.items())
        yield f"        const size_t n = {self._length(values[timed[0].gives[0]].time, lengths)};"
        yield "        size_t t;"
        yield from (f"        memset(&{place}, 0, sizeof {place});" for place in places.values())
        yield "        for (t = 0; t < n; t++) {"
        for operation in timed:
            yield from (f"        {line}" for line in self._block(operation, self._at_step(operation, pointers), "in_"))
        yield "        }"
        yield "    }"

    def _at_step(self, operation: StepOperation, pointers: Mapping[int, str], turned: bool = False) -> dict[int, str]:
        """Return pointers to what an operation reads and gives at step t of n.

        turned  whether it gives its steps from the end
        """
        values, moved = self.program.values, dict[int, str]()
        for each in (*operation.reads, *operation.gives):
            place = "(n - 1 - t)" if turned and each in operation.gives else "t"
            moved[each] = pointers[each] if values[each].time is None else f"{pointers[each]} + {place} * {values[each].size}"
        return moved

    def _over(self, operation: StepOperation, pointers: Mapping[int, str], lengths: Mapping[int, str]) -> Iterator[str]:
        """Yield an operation over a whole sequence."""
        values, form = self.program.values, self.program.kinds[operation.kind].form(operation.settings)
        times = [values[each].time for each in operation.reads if values[each].time is not None]
        yield f"    {{ {comment(operation.name or operation.kind)}"
        if form == "whole":
            if times:
                yield f"        const size_t n0 = {self._length(times[0], lengths)};"
            axis = values[operation.gives[0]].time
            if axis is not None and operation.kind not in ("flip", "softmax of steps"):
                yield f"        const size_t m = {self._length(axis, lengths)};"
            yield from (f"        {line}" for line in self._pointers(operation, pointers))
            yield from (f"        {line}" for line in self._body(operation))
            yield "    }"
            return
        keeps = self._keeps(operation)
        if keeps:
            yield f"        {self._memory[id(operation)]} kept, *s = &kept;"
        if not times:
            yield from (f"        {line}" for line in self._pointers(operation, pointers))
            yield from (f"        {line}" for line in self._body(operation))
            yield "    }"
            return
        yield f"        const size_t n = {self._length(times[0], lengths)};"
        yield "        size_t t;"
        if keeps:
            yield "        memset(s, 0, sizeof *s);"
        backwards = form == "reversed"
        yield f"        for (t = {'n; t-- > 0;' if backwards else '0; t < n; t++'}) {{"
        moved = self._at_step(operation, pointers, backwards and operation.settings["turned"])
        yield from (f"            {line}" for line in self._pointers(operation, moved))
        yield from (f"            {line}" for line in self._body(operation))
        yield "        }"
        yield "    }"


def matrices(shapes: Mapping[str, Sequence[int]]) -> list[str]:
    """Return the arrays that int8 has scales for."""
    return [local for local in MATRICES if local in shapes]
