"""The common part of executors: the sequences of a request, and the outputs and gradients of its answer.

This file belongs to the far side of the pipe, as child.py does, which has executors find it where rnnconvert is not installed: it
imports numpy and nothing of rnnconvert, and runs under Python 3.7. It knows requests, and neither weights nor gates.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray

STATES = ("hidden", "cell")


class WeightsAloneError(NotImplementedError):
    """A file holds weights, and no model that could run whole."""


_OUTSIDE = re.compile(
    r"(Read|Write)File|MatchingFiles|(Save|Restore)(V2|Slices?)?|MergeV2Checkpoints|.*PyFunc.*|.*Reader(V2)?|Debug.*|.*Summary.*Writer.*"
    r"|Write.*Summary|.*(Dataset|Iterator|Snapshot).*|Remote.*|SymbolicGradient|Abort"
)
"""Operators of graphs that reach beyond the model, or hold others that nobody sees: a model's own run has no need of them."""
_WORDS = re.compile(
    r"(.*_)?(files?|file_?names?|file_?paths?|paths?|dirs?|director(y|ies)|folder|address(es)?|prefix(es)?|hosts?|hostname|urls?|protocol"
    r"|server|descriptor|socket|region|target|library|debug_ops_spec|mlir)(_.*)?"
)
"""What speaks of something outside in the name of an operator's input or attribute, where that is a text."""
_KEEPING = re.compile(
    # Variables
    r"(Temporary)?Variable(V2|Shape)?|_?Var(Handle|IsInitialized)(s?Op)|_?ReadVariable(s?Op)|Assign(Add|Sub)?VariableOp|DestroyResourceOp"
    r"|Resource(Gather(Nd)?|Scatter\w+|StridedSliceAssign|CountUpTo)|DisableCopyOnRead|IsResourceHandleRefCounting"
    # Random numbers
    r"|(Stateful)?(Random|Parameterized)?(Uniform(Full)?(Int)?|StandardNormal|TruncatedNormal|Gamma|Poisson|Binomial|Shuffle|Crop)(V2)?"
    r"|StatefulRandomBinomial|Multinomial|Rng(Skip|ReadAndSkip)|NonDeterministicInts|StatelessRandomGetAlg"
    # Lists of tensors, and tables in memory
    r"|TensorArray\w*|Stack(Push|Pop|Close)?(V2)?|(Anonymous)?(Mutable)?(Dense)?HashTable(OfTensors)?(V2)?"
    r"|LookupTable(Find|Insert|Remove|Size|Export|Import)V2|InitializeTableV2"
    # Functions, checks, and layers
    r"|_?If|_?While|Case|(Stateful)?PartitionedCall|DeviceIndex|Assert|Print(V2)?|CheckNumerics(V2)?|GuaranteeConst|Empty|DeepCopy|_Arg|_Retval"
    r"|[A-Z]\w*RNN(Backprop)?(V2|V3)?"
)
"""Operators with a state that models are made of: what they keep stays in memory."""


def refuse_outside(node: Any) -> None:
    """Raise NotImplementedError for an operator that reaches beyond the model, or may, by its message in a graph.

    TensorFlow says of each of its operators whether it has a state, and what it reads: whoever asks has imported it.
    """
    reason = _reason(node.op)
    if not reason and node.op == "PrintV2" and node.attr["output_stream"].s.startswith(b"file:"):
        reason = _REACHES
    if reason:
        raise NotImplementedError(f"its graph has an operator that {reason}, {node.op} ({node.name})")


_REACHES = "reaches beyond the model"


@functools.lru_cache(maxsize=None)  # noqa: UP033 - Python 3.7 runs this file, too
def _reason(kind: str) -> str:
    """Return why a kind of operator is not run, "" if nothing is wrong with it."""
    definition = _definition(kind)
    if _OUTSIDE.fullmatch(kind) or (definition is not None and any(map(_WORDS.fullmatch, _texts(definition)))):
        return _REACHES
    if definition is not None and definition.is_stateful and not _KEEPING.fullmatch(kind):
        return "keeps state but is not one that models are made of; perhaps it reaches beyond the model"
    return ""


def _texts(definition: Any) -> list[str]:
    """Return the names of an operator's inputs and attributes that are texts, or may be."""
    texts = [each.name for each in definition.input_arg if each.type == _STRING or each.type_attr]
    return texts + [each.name for each in definition.attr if "string" in each.type]


_STRING = 7
"""DT_STRING of tensorflow/core/framework/types.proto."""


def _definition(kind: str) -> Any:
    """Return TensorFlow's OpDef of an operator; None where it has none."""
    from tensorflow.python.framework import op_def_registry

    if hasattr(op_def_registry, "get"):
        return op_def_registry.get(kind)
    return op_def_registry.get_registered_ops().get(kind)


class Sequences(NamedTuple):
    """The inputs of layers, by a request's own names (rnnconvert.running)."""

    x: Array
    hidden: Sequence[Array] | None = None
    cell: Sequence[Array] | None = None
    lengths: Array | None = None
    cotangents: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, request: Mapping[str, Any]) -> Sequences:
        """Return the sequences of a request; what it leaves out is None."""
        return cls(request["x"], **{name: request.get(name) for name in cls._fields[1:]})

    def stacked(self, parts: Iterable[str] = STATES) -> dict[str, Array]:
        """Return the initial states that are there, stacked, by "hidden" and "cell"."""
        return {part: np.stack(list(getattr(self, part))) for part in parts if getattr(self, part)}

    def initial(self, widths: Mapping[str, int], rows: int) -> dict[str, Array]:
        """Return initial states, stacked, (rows, batch, width) by "hidden" and "cell"; zeros where there are none."""
        zeros = {part: np.zeros((rows, np.shape(self.x)[1], width)) for part, width in widths.items()}
        return {**zeros, **self.stacked(widths)}

    def first(self, rows: int) -> Sequences:
        """Return the same with so many of the initial states: one layer's, if others follow it."""
        return self._replace(hidden=list(self.hidden or ())[:rows], cell=list(self.cell or ())[:rows])

    def scales(self, parts: Iterable[str]) -> list[Any]:
        """Return the cotangents of the outputs: of y, then of the rows of these final states."""
        assert self.cotangents
        return [self.cotangents["y"], *(list(self.cotangents[part]) for part in parts)]

    def refuse_empty(self, reason: str) -> None:
        """Raise NotImplementedError for a sequence of length zero, with the reason why the framework does not run one."""
        if self.lengths is not None and np.min(self.lengths) < 1:
            raise NotImplementedError(f"a sequence of length zero: {reason}")

    def gradients(self, x: Array, states: Mapping[str, Iterable[Array]], weights: Mapping[str, Array]) -> dict[str, Any]:
        """Return an answer's gradients for one layer, without gradients of states that the request does not give."""
        asked = {part: list(states[part]) if part in states and getattr(self, part) else [] for part in STATES}
        return {"x": x, **asked, "weights": {"": dict(weights)}}

    def through(self, layers: Iterable[Any], run: Callable[[Any, Sequences], dict[str, Any]]) -> dict[str, Any]:
        """Run layers one after the other, each on what the one before gives; return the last one's answer with all final states.

        run  answers for one layer, which takes the first of the initial states; cell states are listed for all layers, or for
             those that have one

        Raises ValueError for another number of states than the layers have.
        """
        answer, finals = {"y": self.x}, {part: [] for part in STATES}  # type: dict[str, Any], dict[str, list[Array]]
        for_all = len(self.cell or ()) == len(self.hidden or ())
        left, read = self, dict.fromkeys(STATES, 0)
        for layer in layers:
            answer = run(layer, left)
            for part in STATES:
                finals[part] += answer[part]
                read[part] += len(answer["hidden" if for_all else part])
            hidden, cell = (list(getattr(self, part) or ())[read[part] :] for part in STATES)
            left = left._replace(x=answer["y"], hidden=hidden, cell=cell)
        for part, count in read.items():
            states = getattr(self, part)
            if states and count not in (0, len(states)):
                raise ValueError(f"{len(states)} {part} states for {count} directions")
        return {**answer, **finals}


def stepped(
    step: Callable[[Array, Array, Array], tuple[Array, Array]], x: Array, h: Array, c: Array, lengths: Any = None
) -> tuple[Array, Array, Array]:
    """Run a step over sequences: the outputs (time, batch, out), zero past a sequence's length, and the last states.

    step     returns the next hidden and cell state of a step's input (batch, in) and the states before
    lengths  how many steps of each sequence count, (batch,); None for all
    """
    y = np.zeros((*x.shape[:2], h.shape[1]), x.dtype)
    for number, sample in enumerate(x):
        new, new_cell = step(sample, h, c)
        counts = np.ones((len(h), 1), bool) if lengths is None else (number < np.asarray(lengths))[:, None]
        h, c = np.where(counts, new, h), np.where(counts, new_cell, c)
        y[number] = np.where(counts, new, 0)
    return y, h, c


def outputs(y: Array, *finals: Iterable[Array]) -> dict[str, Any]:
    """Return an answer: y (time, batch, out), and final states row by row, hidden ones and cell states; empty where there are none."""
    hidden, cell = (*map(list, finals), [], [])[:2]
    return {"y": y, "hidden": hidden, "cell": cell}
