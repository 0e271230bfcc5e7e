"""The modules of a file as a program of the common operations, one rule for each class.

A sequence in tables, as nn.SplitTable makes one and nn.Sequencer reads it, is here one value with the steps in front. Modules within an
nn.Sequencer are called step by step: their axes are those behind the first.

Source: torch/nn, the file of each class; Element-Research/rnn, Sequencer.lua, SeqLSTM.lua, SeqGRU.lua and SeqBRNN.lua;
jcjohnson/torch-rnn, LanguageModel.lua, LSTM.lua and VanillaRNN.lua; soumith/cudnn.torch, RNN.lua and Pointwise.lua.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from rnnconvert.core.limits import NESTING
from rnnconvert.core.malformed import Entries
from rnnconvert.core.weights import Recurrent
from rnnconvert.formats.torch7.classes import KEPT_STATES, TWO_WAYS, unknown_fields
from rnnconvert.formats.torch7.step import HARMLESS as IN_STEPS
from rnnconvert.formats.torch7.torch7_file import LuaTable, Object, numbers_of
from rnnconvert.graphs.program.lowering import OPSET, Block, CheckedRule
from rnnconvert.graphs.program.operations import Body, Declared, Program
from rnnconvert.models.units import single_layers
from rnnconvert.recognition.flow import RecurrentCall
from rnnconvert.recognition.stacked import SingleCall, StackOperator

DOMAIN = "torch7"
_HARMLESS = IN_STEPS | {
    "addBuffer", "noise", "inplace", "momentum", "save_mean", "save_std", "copiedInput", "shouldScaleGradByFreq", "paddingValue",
    "normType", "nBackward", "isRecurrent", "wordvec_dim", "vocab_size", "model_type", "rnn_size", "num_layers", "batchnorm",
    "inputDim", "outputDim", "nOutputPlane",
}  # fmt: skip
"""Fields of modules that serve training or memory, or that repeat what other fields or modules show."""
_ALIKE = {
    "Tanh": "Tanh", "Sigmoid": "Sigmoid", "SoftSign": "Softsign", "Exp": "Exp", "Log": "Log", "Abs": "Abs", "Sqrt": "Sqrt",
}  # fmt: skip
"""Classes that are a common function and state nothing."""
_MOST_MODULES = 1 << 15
"""The most modules that are written, those of all trials together."""
_TORCH_RNN = ("nn.LSTM", "nn.GRU", "nn.VanillaRNN")
"""Layers of torch-rnn, and of its forks: they read (batch, time, features)."""


class ModuleValue(NamedTuple):
    """What a module reads or gives.

    name      of the program's value
    rank      how many axes it has
    integers  whether it is whole numbers
    steps     whether it is a table of steps, which are its first axis
    begun     whether its first axes are those of the model's input
    """

    name: str
    rank: int
    integers: bool = False
    steps: bool = False
    begun: bool = False


Value: TypeAlias = "ModuleValue | list[Value]"


def flat(value: Value) -> Iterator[ModuleValue]:
    """Yield the values in a table, and in the tables in it."""
    if isinstance(value, ModuleValue):
        yield value
    else:
        for part in value:
            yield from flat(part)


class TooManyError(Exception):
    """Modules contain themselves, or are more than a model has: nothing of them is written."""


@dataclass
class ModuleLowering:
    """A file's modules on their way into a program.

    roots   the outermost modules, each with the name of its input
    layers  the recurrent layers by the identity of their modules
    places  the paths of modules and of arrays by their identity
    calls   the calls of the layers, layer by layer
    stacks  the calls of whole stacks, by the names of the layers
    anew    the layers that go on from one call to the next
    notes   what a user should know
    refused  why the model is not described, by the classes of its layers
    """

    roots: Mapping[str, Object]
    layers: Mapping[int, Recurrent]
    places: Mapping[int, str]
    calls: list[SingleCall] = field(default_factory=list)
    stacks: list[tuple[str, RecurrentCall]] = field(default_factory=list)
    anew: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    lacking: int = field(default=0, init=False)
    count: int = field(default=0, init=False)
    views: set[int] = field(default_factory=set, init=False)
    widths: dict[str, int] = field(default_factory=dict, init=False)
    axes: dict[str, tuple[str, str]] = field(default_factory=dict, init=False)
    current: str = field(default="", init=False)
    block: Block = field(default_factory=lambda: Block(" ", {}), init=False)

    def program(self, path: Path, size: int) -> Program:
        """Return the modules as a program.

        size  how many bytes the file has

        How many axes an input has is tried: with one number of them most modules are as they ask.

        Raises ValueError for modules that contain themselves.
        """
        try:
            return self._program(path, size)
        except TooManyError:
            raise ValueError("its modules contain themselves") from None

    def _program(self, path: Path, size: int) -> Program:
        outputs: list[str] = []
        declared = []
        block = self.block
        for name, root in self.roots.items():
            recurrent = any(id(module) in self.layers for module in within(root))
            tries = [ModuleValue(name, rank, integers, begun=True) for rank, integers in ((3, False), (2, True), (2, False), (1, True))]
            tries = tries if recurrent else tries[::-1]
            lacking = [self._tried(root, value) for value in tries]
            value = tries[lacking.index(min(lacking))]
            self._begin(block)
            outputs += [output.name for output in flat(self._root(root, value))]
            dims: list[int | str | None] = [*self.axes.get(name, ()), *[None] * value.rank][: value.rank]
            if not value.integers:
                dims[-1] = self.widths.get(name)
            declared.append(Declared(name, np.dtype(np.int32 if value.integers else np.float32), dims))
        return Program(path, Body(block.nodes, list(self.roots), outputs, block.stored, declared), {"": OPSET}, size=size)

    def _begin(self, block: Block) -> None:
        self.block, self.lacking = block, 0

    def _tried(self, root: Object, value: ModuleValue) -> int:
        """Return how many modules have no equivalent, with a value as the input."""
        before = self.calls, self.stacks, self.anew, self.notes, self.widths, self.axes
        self.calls, self.stacks, self.anew, self.notes, self.widths, self.axes = [], [], set(), [], {}, {}
        self._begin(Block(" ", {}))
        self._root(root, value)
        self.calls, self.stacks, self.anew, self.notes, self.widths, self.axes = before
        return self.lacking

    def _root(self, root: Object, value: ModuleValue) -> Value:
        """Write an outermost module. Layers of steps outside of an nn.Sequencer read a step a call, one after the other."""
        self.current, modules = value.name, list(within(root))
        sequencers = any(module.name == "nn.Sequencer" for module in modules)
        steps = [module for module in modules if id(module) in self.layers and _by_step(module)]
        if steps and not sequencers:
            self.notes.append(f"{steps[0].name} reads a step a call in Torch7, and goes on; what is written reads sequences")
        return self.run(root, value, int(bool(steps) and not sequencers), 0)

    def run(self, module: Object, value: Value, lead: int, depth: int) -> Value:
        """Write a module; return what it gives.

        lead  how many axes in front it does not see: the steps of an nn.Sequencer
        """
        self.count += 1
        if depth > NESTING or self.count > _MOST_MODULES:
            raise TooManyError
        return ModuleRule(self, module, value, lead, depth).write()


def _by_step(module: Object) -> bool:
    """Return whether a layer is called for each step: one of Element-Research's package that is a tree of modules."""
    return "recurrentModule" in module.fields


def _batch_first(module: Object) -> bool | None:
    """Return whether a layer reads (batch, time, features); None where its fields do not show it.

    SeqLSTM did in its first version, which had no batchfirst; SeqBRNN has transposes around its layers then.
    """
    fields = module.fields
    stated = next((fields[word] for word in ("batchfirst", "batchFirst") if isinstance(fields.get(word), bool)), None)
    if stated is not None or module.name.startswith("cudnn."):
        return bool(stated)
    if module.name == "nn.SeqBRNN":
        inner = fields.get("module")
        return isinstance(inner, Object) and bool(children(inner)) and children(inner)[0].name == "nn.Transpose"
    if module.name in TWO_WAYS or _by_step(module):
        return False
    if module.name in _TORCH_RNN:
        return True
    return False if "_remember" in fields else None


def children(module: Object) -> list[Object]:
    """Return the modules in a container, in their order."""
    held = module.fields.get("modules")
    inside = held.listed() if isinstance(held, LuaTable) else []
    if module.name == "nn.LanguageModel":
        inside = [module.fields.get("net")]
    elif module.name == "nn.Sequencer" and not inside:
        inside = [module.fields.get("module")]
    return [child for child in inside if isinstance(child, Object)]


def within(module: Object) -> Iterator[Object]:
    """Yield a module and all in it, each once."""
    stack, seen = [module], set[int]()
    while stack:
        node = stack.pop()
        if id(node) not in seen:
            seen.add(id(node))
            yield node
            stack += reversed(children(node))


class ModuleRule(CheckedRule):
    """One module, and the program that it is written into.

    value  what it reads
    lead   how many axes in front it does not see
    gives  what it gives, once it is written
    """

    def __init__(self, lowering: ModuleLowering, module: Object, value: Value, lead: int, depth: int) -> None:
        self.lowering, self.module, self.value, self.lead, self.depth = lowering, module, value, lead, depth
        self.path = lowering.places.get(id(module), "")
        self._read: set[str] = set()
        block = lowering.block
        self.gives: Value = ModuleValue(f"{block.prefix}{len(block.nodes)}:{self.path or module.name}", 0)
        super().__init__(block, Entries(each.name for each in flat(value)), [self.gives.name], self.path)

    def write(self) -> Value:
        """Write the module; as one of another domain where it has no equivalent, or a field that is not read. Return what it gives."""
        kind = self.module.name
        self.block.operator = kind
        stack = self.lowering.layers.get(id(self.module))
        if stack is not None:
            written = self.by_rule(lambda rule: rule.recurrent(stack))
            if not written:  # it reads a table of a sequence and states, or whole numbers
                self.block.add(kind, self.inputs, self.outputs, self.label, DOMAIN)
        else:
            package, _, name = kind.partition(".")
            rule = _RULES.get(name) if package == "nn" or (package == "cudnn" and name in _POINTWISE) else None
            written = self._contains(rule) if name in _CONTAINERS else self.write_checked(rule, kind, self.inputs, DOMAIN)
        if not written:
            self.lowering.lacking += 1
            first = next(flat(self.value), ModuleValue("", 0))
            return ModuleValue(self.outputs[0], first.rank, steps=first.steps, begun=first.begun)
        return self.gives

    def _contains(self, rule: Callable[[Any], bool] | None) -> bool:
        """Write a container; behind the modules in it, what nothing looks into where it states what is not read."""
        written, unread = self.by_rule(rule), self.unread()
        if written and not unread:
            return True
        self.block.operator = self.module.name + (f" with {min(unread)}={unread[min(unread)]}" if unread else "")
        reads = [each.name for each in flat(self.gives)] if written else self.inputs
        self.block.add(self.module.name, reads, self.outputs, self.label, DOMAIN)
        return False

    def unread(self) -> Mapping[str, object]:
        unknown = unknown_fields(self.module)
        return {name: value for name, value in unknown.items() if name not in self._read | _HARMLESS}

    # Fields

    def get(self, name: str, default: Any = None) -> Any:
        """Return a field."""
        self._read.add(name)
        value = self.module.fields.get(name)
        return default if value is None else value

    def integer(self, name: str, default: int | None = None) -> int:
        """Return a field that is a whole number. Raises ValueError for another one."""
        value = self.get(name, default)
        if type(value) is not int:
            raise ValueError(f"{name} is {value!r}")
        return value

    def real(self, name: str, default: float | None = None) -> float:
        """Return a field that is a number. Raises ValueError for another one."""
        value = self.get(name, default)
        if type(value) not in (int, float):
            raise ValueError(f"{name} is {value!r}")
        return float(value)

    def array(self, name: str) -> str:
        """Return an array of the module as a value. Raises ValueError where it has none."""
        array = self.get(name)
        if not isinstance(array, np.ndarray) or not array.size:
            raise ValueError(f"it has no {name}")
        label = self.lowering.places.get(id(array), f"{self.path}/{name}")
        return self.block.constant(array, f" {label}", label)

    def has(self, name: str) -> bool:
        """Return whether the module has an array."""
        array = self.get(name)
        return isinstance(array, np.ndarray) and array.size > 0

    # Values

    @property
    def x(self) -> ModuleValue:
        """The one value that it reads. Raises ValueError for a table."""
        if not isinstance(self.value, ModuleValue):
            raise ValueError("it reads a table")
        return self.value

    @property
    def numbers_read(self) -> ModuleValue:
        """The one value that it reads, of real numbers. Raises ValueError for others."""
        if self.x.integers or (self.x.steps and not self.lead and self.module.name != "nn.BiSequencer"):
            raise ValueError("it reads whole numbers, or a table")
        return self.x

    def axis(self, dimension: int, seen: int | None = None, rank: int | None = None) -> int:
        """Return an axis that a field states, counted from 1, or from the end.

        seen  how many axes a value has without a batch, where the module states it
        rank  how many axes the value has; those of what it reads by default

        Raises ValueError for one that there is not.
        """
        rank = self.x.rank if rank is None else rank
        more = int(bool(seen) and dimension > 0 and rank - self.lead == (seen or 0) + 1)
        axis = rank + dimension if dimension < 0 else self.lead + dimension - 1 + more
        if not self.lead <= axis < rank or not dimension or (self.reads_steps and not self.lead):
            raise ValueError(f"no axis {dimension}")
        return axis

    @property
    def reads_steps(self) -> bool:
        """Whether it reads a table of steps."""
        return isinstance(self.value, ModuleValue) and self.value.steps

    def give(self, rank: int, begun: bool = False, steps: bool | None = None, integers: bool = False) -> bool:
        """Note what it gives."""
        steps = next(flat(self.value), ModuleValue("", 0)).steps if steps is None else steps
        self.gives = ModuleValue(self.outputs[0], rank, integers, steps, begun)
        return True

    def alike(self, kind: str, *more: str, **attributes: Any) -> bool:
        """Write one common operation of real numbers that gives as many."""
        x = self.numbers_read
        return self.give(x.rank, x.begun) and self.add(kind, [x.name, *more], **attributes)

    # Containers

    def sequence(self) -> bool:
        """Write modules one after the other."""
        self._within(self.lead)
        return True

    def _within(self, lead: int) -> None:
        value = self.value
        for child in children(self.module):
            value = self.lowering.run(child, value, lead, self.depth + 1)
        self.gives = value

    def by_step(self) -> bool:
        """Write a module that is called for each step."""
        self._within(1)
        return not self.lead and all(each.steps or each.rank > 1 for each in flat(self.value))

    def language_model(self) -> bool:
        """Write torch-rnn's model: before each call it sets its views to (batch * time, features) and back, and so they change nothing."""
        self.lowering.views.update(map(id, self._views()))
        self._within(self.lead)
        return True

    def _views(self) -> Iterator[object]:
        for name in ("view1", "view2", "bn_view_in", "bn_view_out"):
            held = self.get(name)
            yield from held.listed() if isinstance(held, LuaTable) else [held]

    def table(self) -> bool:
        """Write modules that read the same value, each for itself."""
        self.gives = [self.lowering.run(child, self.value, self.lead, self.depth + 1) for child in children(self.module)]
        return True

    def parallel(self) -> bool:
        """Write modules each of which reads a value of a table."""
        if not isinstance(self.value, list):
            return False
        pairs = zip(children(self.module), self.value, strict=True)
        self.gives = [self.lowering.run(child, value, self.lead, self.depth + 1) for child, value in pairs]
        return True

    def side_by_side(self) -> bool:
        """Write modules that read the same value, and what they give side by side."""
        self.value = [self.lowering.run(child, self.value, self.lead, self.depth + 1) for child in children(self.module)]
        return self._joined(self.integer("dimension"), None)

    # Tables

    def selected(self) -> bool:
        """Write one value of a table."""
        index = self.integer("index")
        index -= index > 0
        if isinstance(self.value, list):
            if not -len(self.value) <= index < len(self.value):
                return False
            self.gives = self.value[index]
            return True
        fits, place = self.x.steps and not self.lead, self.block.constant(np.array(index, np.int64))
        return fits and self.give(self.x.rank - 1, steps=False) and self.add("Gather", [self.x.name, place], axis=0)

    def narrowed_table(self) -> bool:
        """Take several values of a table."""
        first, count = self.integer("offset"), self.integer("length", 1)
        if not isinstance(self.value, list) or not 0 < first <= first + count - 1 <= len(self.value):
            return False
        self.gives = self.value[first - 1 : first - 1 + count]
        return True

    def flattened_table(self) -> bool:
        """Take the values of tables in a table as one table."""
        self.gives = list(flat(self.value))
        return True

    def joined(self) -> bool:
        """Write the values of a table side by side."""
        return self._joined(self.integer("dimension"), self.get("nInputDims"))

    def _joined(self, dimension: int, seen: Any) -> bool:
        if isinstance(self.value, ModuleValue):
            return self._joined_steps(dimension, seen)
        every = list(flat(self.value))
        if len({(each.rank, each.integers, each.steps) for each in every}) != 1:
            return False
        axis = self.axis(dimension, seen if type(seen) is int else None, every[0].rank)
        return self.give(every[0].rank, steps=every[0].steps) and self.add("Concat", [each.name for each in every], axis=axis)

    def _joined_steps(self, dimension: int, seen: Any) -> bool:
        """Write the steps of a sequence side by side, along the batch or along the features."""
        x = self.x
        if not x.steps or x.rank != 3 or self.lead:
            return False
        self.lead = 1
        axis = self.axis(dimension, seen if type(seen) is int else None)
        self.lead = 0
        width = self.block.add("Slice", [self.block.add("Shape", [x.name])], axes=[0], starts=[axis], ends=[axis + 1])
        if axis == 1:
            width = self.block.add("Slice", [self.block.add("Shape", [x.name])], axes=[0], starts=[2], ends=[3])
            shape = self.block.add("Concat", [self.whole_numbers([-1]), width], axis=0)
            return self.give(2, steps=False) and self.add("Reshape", [x.name, shape])
        turned = self.block.add("Transpose", [x.name], perm=[1, 0, 2])
        return self.give(2, steps=False) and self.add("Reshape", [turned, self.whole_numbers([0, -1])])

    def parted(self) -> bool:
        """Write the parts of a value as a table: its steps."""
        x, seen = self.x, self.get("nInputDims")
        axis = self.axis(self.integer("dimension"), seen if type(seen) is int else None)
        if self.lead or x.steps:
            return False
        order = [axis, *(each for each in range(x.rank) if each != axis)]
        self.give(x.rank, steps=True, integers=x.integers, begun=x.begun and not axis)
        return self.add("Transpose", [x.name], perm=order)

    def combined(self, kind: str) -> bool:
        """Write the sum of the values of a table, or another operation on each of their numbers."""
        every = list(flat(self.value))
        if isinstance(self.value, ModuleValue) or len({(each.rank, each.steps) for each in every}) != 1 or any(e.integers for e in every):
            return False
        value = every[0].name
        for other in every[1:-1]:
            value = self.block.add(kind, [value, other.name])
        return self.give(every[0].rank) and self.add(kind, [value, every[-1].name]) if len(every) > 1 else self.same()

    # Layers

    def recurrent(self, stack: Recurrent) -> bool:
        """Write a recurrent layer, or a stack of them."""
        x, fields, name = self.numbers_read, self.module.fields, self.module.name
        by_step, first = _by_step(self.module), _batch_first(self.module)
        if first is None:
            self.lowering.refused.setdefault(name, "its fields do not show whether it reads the batch first, as its first version does")
        self._note(x, stack.input_size, ("batch", "time") if first else ("time", "batch"))
        self.block.operator = None
        read = self.block.add("Transpose", [x.name], perm=[1, 0, 2]) if first else self.block.add("Identity", [x.name])
        self.block.operator = name
        every = f"{self.outputs[0]}, every step"
        operator = StackOperator(name, DOMAIN, self.path, read, [every])
        self.lowering.calls += [(single, call, []) for single, call in operator.write(self.block, single_layers(stack))]
        self.lowering.stacks.append((stack.name, operator.call(stack)))
        if any(fields.get(word) in values for word, values in KEPT_STATES.items()):
            self.lowering.anew.update(single.name for single in single_layers(stack))
        self.give(3, x.begun)
        masked = fields.get("maskzero") is True
        if masked or x.rank != 3 or by_step != bool(self.lead) or (x.steps and bool(first)):
            self.lowering.lacking += 1
            self.block.operator = f"{name} with maskzero=True" if masked else name
            return self.add(name, [every], domain=DOMAIN)
        self.block.operator = None
        return self.add("Transpose", [every], perm=[1, 0, 2]) if first else self.add("Identity", [every])

    def _note(self, x: ModuleValue, width: int, axes: tuple[str, str] | None = None) -> None:
        """Note what a reader shows of the model's input."""
        if x.begun and x.name in self.lowering.roots:
            self.lowering.widths.setdefault(x.name, width)
        if x.begun and axes is not None:
            self.lowering.axes.setdefault(self.lowering.current, axes)

    def linear(self) -> bool:
        """Write a dense layer."""
        x, weight = self.numbers_read, self.array("weight")
        _, width = self.block.arrays[weight].shape
        self._note(x, width)
        turned = self.block.add("Transpose", [weight], perm=[1, 0])
        y = self.block.add("MatMul", [x.name, turned], name=self.path)
        biased = self.module.name != "nn.LinearNoBias" and self.has("bias")
        return self.give(x.rank, x.begun) and self.add(*(("Add", [y, self.array("bias")]) if biased else ("Identity", [y])))

    def looked_up(self, from_one: bool) -> bool:
        """Write rows of a matrix by their numbers, which count from 1; with LookupTableMaskZero 0 is a row of zeros."""
        x, table = self.x, self.array("weight")
        if not x.integers:
            return False
        places = x.name
        if from_one and x.begun:
            self.lowering.notes.append("the whole numbers that it reads count from 1, as Torch7's do")
        if from_one:
            places = self.block.add("Sub", [places, self.block.constant(np.array(1, np.int32))])
        else:
            rows = self.block.arrays[table].copy()
            rows[0] = 0
            table = self.block.constant(rows, f"{table} with zeros", table.strip())
        return self.give(x.rank + 1, x.begun) and self.add("Gather", [table, places], axis=0)

    def normalised(self) -> bool:
        """Write a batch normalization by its stored means and variances, of the last axis."""
        x, size = self.numbers_read, np.asarray(self.get("running_mean")).shape
        statistics = [self.array("running_mean"), self.array("running_var")]
        self._read.add("affine")  # whether it has weights shows it
        affine = self.has("weight")
        scales = [self.array("weight"), self.array("bias")] if affine else [self.block.constant(np.full(size, n, "f4")) for n in (1, 0)]
        order = [0, x.rank - 1, *range(1, x.rank - 1)]
        value = x.name if x.rank == 2 else self.block.add("Transpose", [x.name], perm=order)
        y = self.block.add("BatchNormalization", [value, *scales, *statistics], name=self.path, epsilon=self.real("eps", 1e-5))
        back = [0, *range(2, x.rank), 1]
        return self.give(x.rank, x.begun) and (self.add("Identity", [y]) if x.rank == 2 else self.add("Transpose", [y], perm=back))

    def dropped(self) -> bool:
        """Write nn.Dropout as it is where nothing is trained: of its first version it scales its input then."""
        p, second = self.real("p", 0.5), self.get("v2") is True
        if self.get("stochastic_inference") is True:
            return False
        return self.same() if second or not p else self.alike("Mul", self.constant(1 - p))

    # Functions

    def softened(self, kind: str) -> bool:
        """Write a softmax of the features of a vector, or of each row."""
        x = self.numbers_read
        return x.rank - self.lead in (1, 2) and self.alike(kind, axis=-1)

    def bounded(self) -> bool:
        """Write nn.Threshold: another number in place of small ones."""
        threshold, value = self.real("threshold", 0.0), self.real("val", 0.0)
        if threshold == value == 0:
            return self.alike("Relu")
        small = self.block.add("Greater", [self.numbers_read.name, self.constant(threshold)])
        return self.give(self.x.rank, self.x.begun) and self.add("Where", [small, self.x.name, self.constant(value)])

    def soft_plus(self) -> bool:
        """Write log(1 + exp(x)); from its threshold on Torch7 takes x, which is the same number in float32."""
        return self.real("beta", 1.0) == 1 and self.real("threshold", 20.0) >= 20 and self.alike("Softplus")

    # Moves

    def same(self) -> bool:
        """Write what changes nothing."""
        self.gives = self.value
        return True

    def transposed(self) -> bool:
        """Write pairs of axes exchanged, one pair after the other."""
        x, pairs, seen = self.x, self.get("permutations"), self.get("numInputDims")
        order = list(range(x.rank))
        for pair in pairs.listed() if isinstance(pairs, LuaTable) else []:
            first, second = (self.axis(int(each), seen if type(seen) is int else None) for each in numbers_of(pair))
            order[first], order[second] = order[second], order[first]
        return not x.steps and self.give(x.rank, integers=x.integers) and self.add("Transpose", [x.name], perm=order)

    def element(self) -> bool:
        """Write one place of an axis."""
        x, axis, index = self.x, self.axis(self.integer("dimension")), self.integer("index")
        place = self.block.constant(np.array(index - 1 if index > 0 else index, np.int64))
        return self.give(x.rank - 1, integers=x.integers) and self.add("Gather", [x.name, place], axis=axis)

    def narrowed(self) -> bool:
        """Write a range of an axis."""
        x, axis, index, length = self.x, self.axis(self.integer("dimension")), self.integer("index"), self.integer("length", 1)
        if index < 1 or length < 1:
            return False
        return self.give(x.rank, integers=x.integers) and self.add(
            "Slice", [x.name], axes=[axis], starts=[index - 1], ends=[index - 1 + length]
        )

    def turned(self) -> bool:
        """Write a sequence turned around."""
        axis = self.axis(self.integer("dim", 1))
        x, self.inputs = self.x, Entries([self.x.name])
        return self.give(x.rank, x.begun, integers=x.integers) and self.flip([axis])

    def reduced_along(self, kind: str) -> bool:
        """Write the sum of the numbers along an axis, or the mean, the largest or the smallest."""
        x, seen = self.numbers_read, self.get("nInputDims", self.get("numInputDims"))
        axis, away = self.axis(self.integer("dimension", 1), seen if type(seen) is int else None), self.get("squeeze") is not False
        if self.get("sizeAverage") is True:
            kind = "ReduceMean"
        return self.give(x.rank - away) and self.add(kind, [x.name], axes=[axis], keepdims=int(not away))

    def reshaped(self) -> bool:
        """Write nn.Reshape, whose first axis is the batch unless batchMode is false."""
        shape = numbers_of(self.get("size"))
        batched = self.get("batchMode") is not False
        return not self.lead and self._shaped([0, *shape] if batched else shape)

    def viewed(self) -> bool:
        """Write nn.View: what its sizes leave over is the batch."""
        shape, seen = numbers_of(self.get("size")), self.get("numInputDims")
        self._read.add("numElements")
        if id(self.module) in self.lowering.views:
            return self.same()
        extra = self.x.rank - seen if type(seen) is int else 0
        if self.lead or extra > 1:
            return False
        if -1 in shape:
            return self._shaped([0, *shape] if extra else shape)
        return self._shaped([-1, *shape])

    def _shaped(self, shape: Sequence[int]) -> bool:
        x = self.x
        return not x.steps and self.give(len(shape), integers=x.integers) and self.add("Reshape", [x.name, self.whole_numbers(shape)])


_CONTAINERS = ("Sequential", "Sequencer", "LanguageModel", "ConcatTable", "ParallelTable")
ROOTS = frozenset(f"nn.{name}" for name in _CONTAINERS)
"""The classes of containers that are whole models."""
_POINTWISE = ("ReLU", "Tanh", "Sigmoid", "SoftMax", "LogSoftMax")
"""The classes that cudnn.torch has, too."""


def _alike(kind: str) -> Callable[[ModuleRule], bool]:
    return lambda rule: rule.alike(kind)


_RULES: Mapping[str, Callable[[ModuleRule], bool]] = {
    **{name: _alike(kind) for name, kind in _ALIKE.items()},
    "Sequential": ModuleRule.sequence,
    "Sequencer": ModuleRule.by_step,
    "LanguageModel": ModuleRule.language_model,
    "ConcatTable": ModuleRule.table,
    "ParallelTable": ModuleRule.parallel,
    "Concat": ModuleRule.side_by_side,
    **dict.fromkeys(("Identity", "Copy", "Contiguous"), ModuleRule.same),
    "SelectTable": ModuleRule.selected,
    "NarrowTable": ModuleRule.narrowed_table,
    "FlattenTable": ModuleRule.flattened_table,
    "JoinTable": ModuleRule.joined,
    "SplitTable": ModuleRule.parted,
    "CAddTable": lambda rule: rule.combined("Add"),
    "CSubTable": lambda rule: rule.combined("Sub"),
    "CMulTable": lambda rule: rule.combined("Mul"),
    "CDivTable": lambda rule: rule.combined("Div"),
    "CMaxTable": lambda rule: rule.combined("Max"),
    **dict.fromkeys(("Linear", "LinearNoBias"), ModuleRule.linear),
    "LookupTable": lambda rule: rule.looked_up(True),
    "LookupTableMaskZero": lambda rule: rule.looked_up(False),
    "BatchNormalization": ModuleRule.normalised,
    "Dropout": ModuleRule.dropped,
    "SoftMax": lambda rule: rule.softened("Softmax"),
    "LogSoftMax": lambda rule: rule.softened("LogSoftmax"),
    **dict.fromkeys(("ReLU", "Threshold"), ModuleRule.bounded),
    "LeakyReLU": lambda rule: rule.alike("LeakyRelu", alpha=rule.real("negval", 0.01)),
    "ELU": lambda rule: rule.alike("Elu", alpha=rule.real("alpha", 1.0)),
    "HardTanh": lambda rule: rule.alike("Clip", min=rule.real("min_val", -1.0), max=rule.real("max_val", 1.0)),
    "SoftPlus": ModuleRule.soft_plus,
    "MulConstant": lambda rule: rule.alike("Mul", rule.constant(rule.real("constant_scalar"))),
    "AddConstant": lambda rule: rule.alike("Add", rule.constant(rule.real("constant_scalar"))),
    "Transpose": ModuleRule.transposed,
    "Select": ModuleRule.element,
    "Narrow": ModuleRule.narrowed,
    "SeqReverseSequence": ModuleRule.turned,
    "Mean": lambda rule: rule.reduced_along("ReduceMean"),
    "Sum": lambda rule: rule.reduced_along("ReduceSum"),
    "Max": lambda rule: rule.reduced_along("ReduceMax"),
    "Min": lambda rule: rule.reduced_along("ReduceMin"),
    "Reshape": ModuleRule.reshaped,
    "View": ModuleRule.viewed,
}
"""The classes that are known."""
