"""Weights alone as a model: their layers in an order that the caller states, in words such as "lstm relu fc"."""

from __future__ import annotations

import itertools
import re
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace

from rnnconvert.core.errors import UsageError
from rnnconvert.core.printable import listed
from rnnconvert.core.remedies import Command, Flag, Remedy, called_by_flags
from rnnconvert.models.model import Model, Unit
from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.description import Description
from rnnconvert.scaffolding.operations import activation, reduced
from rnnconvert.scaffolding.rows import LayerRow
from rnnconvert.scaffolding.tensors import SourceTensor

FUNCTIONS = (
    "tanh", "relu", "sigmoid", "softmax", "log_softmax", "elu", "gelu", "silu", "selu", "softplus", "softsign", "mish", "relu6",
    "hard_swish",
)  # fmt: skip
"""The activations that may stand between layers."""
STEPS = ("last", "final", "mean", "max")
"""The words for one step made of a sequence: its last step, the last state of the layer before it in each direction, and the mean and
the maximum over the time."""
SKIP = "skip"
"""The word for the sum with the model's input."""
_WORDS = (*FUNCTIONS, *STEPS, SKIP)
_MOST = 8
"""The most layers whose orders are tried."""
_ORDERS = 100
"""The most orders that are tried."""
_FIRST = ("recurrent", "multiplicative", "embedding")
"""The layers that models begin with, if sizes allow another order, too."""
_RNN = ("tanh", "relu")
_FACTORS = ("wx", "wh", "wmx", "wmh")
"""The products of a multiplicative LSTM, by the names that everybody gives them: of the input and of what it multiplies, for the gates;
of the input and of the state, for that.

Sources: guillitte/pytorch-sentiment-neuron models.py, mLSTM; openai/generating-reviews-discovering-sentiment encoder.py, mlstm.
"""
_GATES = tuple("".join(order) for order in itertools.permutations("ifgo"))


class UnstatedOrderError(UsageError):
    """Weights without a model, whose layers' order nobody stated.

    text    what was said without a way out
    orders  those that their sizes allow and that something speaks for
    names   the layers
    doubt   what speaks against these orders, or ""
    """

    def __init__(self, text: str, orders: Sequence[str], names: Sequence[str], doubt: str = "", way: Remedy | None = None) -> None:
        self.text, self.orders, self.names, self.doubt = text, tuple(orders), tuple(names), doubt
        way = way or Flag("chain", orders[0] if orders else None)
        if not orders:
            spelled = f"{way}, by their names: {', '.join(names)}; no order of all, or several, fit by their sizes"
        elif len(orders) > 1:
            spelled = f"by sizes {Flag('chain', orders[0])}, as the file lists them, or {Flag('chain', orders[1])}"
        else:
            spelled = f"as in {way}" if doubt else f"by sizes alone {way}"
        spelled += f"; {doubt}" if orders and doubt else ""
        unknown = "weights do not show functions such as relu, nor last or final before a layer that reads one step"
        super().__init__(f"{text}. Or state the order of its layers ({unknown}: add them), {spelled}")

    @property
    def order(self) -> str:
        """The only one of its orders, or ""."""
        return self.orders[0] if len(self.orders) == 1 else ""

    @property
    def single(self) -> bool:
        """Whether there is one layer, so that no order is to be stated."""
        return bool(self.order) and len(self.names) == 1 and not self.doubt

    def for_target(self, source: object, target: object, format: str | None) -> UnstatedOrderError:
        """Return the error of a model that was to be written to a file, with the command that does it where one order fits."""
        to = {} if format is None else {"to" if called_by_flags() else "format": format}
        command = Command("export" if called_by_flags() else "export_model", source, target, **to, chain=self.order)
        return UnstatedOrderError(self.text, self.orders, self.names, self.doubt, command if self.order else None)


@dataclass(frozen=True)
class _Word:
    """A word of an order: the layers that it names, and what they are.

    text    the word
    units   the layers, one of a stack after the other
    kind    "recurrent", "multiplicative", "dense", "embedding" or "prelu": what weights alone state in full
    width   how many values a step it reads; 0 for an embedding
    gives   how many it gives
    rows    of an embedding, how many numbers it knows
    gates   of a multiplicative LSTM, the order of its gates
    backward  where two recurrent layers are the directions of one, those that read from the end
    """

    text: str
    units: tuple[Unit, ...]
    kind: str
    width: int
    gives: int
    rows: int = 0
    gates: str = ""
    backward: tuple[Unit, ...] = ()


def _names(model: Model) -> dict[str, tuple[Unit, ...]]:
    """Return the layers by the shortest words that name them, a stack's together; one without a name goes by its cell."""
    together: dict[str, list[Unit]] = {}
    named = {unit.name: unit for unit in model.units if not unit.alias}
    factors: set[str] = set()
    for start in [name.removesuffix(_FACTORS[0]) for name in named if name.rpartition(".")[2] == _FACTORS[0]]:
        others = [name for name in model.arrays if name.startswith(start) and "." not in name[len(start) :]]  # such as norms of its weights
        if all(f"{start}{word}" in named for word in _FACTORS) and not others:
            together[start[:-1] or "mlstm"] = [named[f"{start}{word}"] for word in _FACTORS]
            factors |= {f"{start}{word}" for word in _FACTORS}
    for unit in model.units:
        if not unit.alias and unit.name not in factors:
            base = re.sub(r"\[\d+\]$", "", unit.name)
            together.setdefault(base or (unit.stack.cell.kind if unit.stack is not None else unit.name), []).append(unit)
    result = {}
    for name, units in together.items():
        ends = [".".join(name.split(".")[-count:]) for count in range(1, name.count(".") + 2)]
        others = [other for other in together if other != name]
        # A number alone, as the 0 of head.net.0, says nothing to a reader, though it may be unique.
        speaking = [end for end in ends if not end.isdecimal()] or [name]
        short = next((end for end in speaking if not any(other == end or other.endswith(f".{end}") for other in others)), name)
        result[short if short not in _WORDS else name] = tuple(units)
    return result


def _readings(text: str, units: tuple[Unit, ...], model: Model) -> Iterator[_Word]:
    """Yield the possible readings of layers of one name."""
    first, end = units[0], units[-1]
    if first.stack is not None and end.stack is not None:
        yield _Word(text, units, "recurrent", first.stack.input_size, end.stack.layers[-1].output_size)
        return
    if len(units) == len(_FACTORS) and all("dense" in unit.kinds for unit in units):
        shapes = [model.parts(unit, "dense")["weight"].shape for unit in units]
        (gates, width), (_, size), *_ = shapes
        if gates == 4 * size and shapes == [(gates, width), (gates, size), (size, width), (size, size)]:
            yield _Word(text, units, "multiplicative", width, size)
        return
    for kind in ("dense", "embedding", "prelu"):
        if len(units) == 1 and kind in first.kinds:
            parts = model.parts(first, kind)
            (_, array), *_ = parts.items()
            if kind == "dense":
                yield _Word(text, units, kind, array.shape[1], array.shape[0])
            elif kind == "embedding":
                yield _Word(text, units, kind, 0, array.shape[1], array.shape[0])
            elif text.rpartition(".")[2].lower().startswith("prelu"):
                yield _Word(text, units, kind, array.size, array.size)


def unstated(model: Model, error: UsageError) -> UnstatedOrderError | None:
    """Return the error that asks for the order of the layers of weights alone; None for a file without layers that have one.

    error  what was said
    """
    names = _names(model)
    readings = {text: list(_readings(text, units, model)) for text, units in names.items()}
    if not readings or not any(word.kind in _FIRST[:2] for words in readings.values() for word in words):
        return None
    text = str(error).rstrip(".")
    # One vector, as the spread of a policy or the weights of a loss, is rarely of the chain, though it may be a norm's.
    idle = [text for text, words in readings.items() if not words and all(len(unit.arrays) == 1 for unit in names[text])]
    placed = {text: words for text, words in readings.items() if text not in idle}
    if len(placed) > _MOST or not all(placed.values()):
        return UnstatedOrderError(text, (), list(readings))
    orders = list[str]()
    fitting = list(itertools.islice(_orders(placed, 0), _ORDERS))
    begun = [words for words in fitting if words[0].kind in _FIRST]  # an LSTM of 1 -> 8 and a dense layer of 8 -> 1 fit both ways
    chosen = fitting if len(fitting) == 1 else begun
    if len(chosen) == 1 and len(fitting) < _ORDERS:
        # Code makes layers in the order in which it calls them, as a rule; sorted names show none.
        in_the_file = [words for words in fitting if [word.text for word in words] == list(placed) != sorted(placed)]
        orders = [" ".join(_spelled(word, readings) for word in words) for words in (*in_the_file, *chosen)]
    doubts = [
        *([f"{listed(idle)} left out, which may be a norm or of no layer"] if idle else []),
        *([f"{listed(model.loose)} are not known to be of a layer"] if model.loose else []),
        *([f"the file leaves open: {listed(dict.fromkeys(question.option for question in model.questions))}"] if model.questions else []),
    ]
    return UnstatedOrderError(text, list(dict.fromkeys(orders)), list(readings), ", and ".join(doubts))


def _orders(left: dict[str, list[_Word]], width: int) -> Iterator[list[_Word]]:
    """Yield the orders of all layers in which each reads what the one before gives.

    width  how many values the one before gives; 0 for the first layer
    """
    if not left:
        yield []
    for text, words in left.items():
        rest = {other: listed for other, listed in left.items() if other != text}
        for word in words:
            fits = not width if word.kind == "embedding" else width in (0, word.width) or (word.width == 1 and word.kind == "prelu")
            if fits:
                yield from ([word, *others] for others in _orders(rest, width if word.kind == "prelu" and width else word.gives))


def _spelled(word: _Word, readings: dict[str, list[_Word]]) -> str:
    return word.text if len(readings[word.text]) == 1 or word.kind == "dense" else f"{word.text}:{word.kind}"


def ordered(model: Model, order: str) -> tuple[Model, Description]:
    """Return weights, and the model whose layers they are in a stated order.

    It reads (batch, time, values), or whole numbers (batch, time) where an embedding comes first.

    order  names of layers, each a prefix in the file or the end of one, with activations between, the words of STEPS for one step made of
           what stands before, and "skip" for the sum with the input; NAME:embedding, NAME:dense and, of an RNN, NAME:relu say what the
           weights do not; NAME+OTHER are the directions of one layer: the second reads from the end, and they stand side by side

    Raises UsageError for a name that no layer has, and for layers that do not fit together.
    """
    names, words = _names(model), order.replace(",", " ").split()
    if not words:
        raise UsageError(f"{Flag('chain')} is empty. Name the layers of {model.title} in their order: {', '.join(names)}")
    build: LayerRow | None = None
    x: SourceTensor | None = None
    before, read, chosen = "the input", set[str](), dict[str, Unit]()
    for number, text in enumerate(words):
        if text not in names and text in _WORDS:
            if x is None or build is None:
                raise UsageError(
                    f"{Flag('chain')}: {text!r} stands first, and has nothing to work on. Begin with a layer: {', '.join(names)}"
                )
            x, before = _worked(build, text, x, before), text
            continue
        readers = [_split(other, names)[0][0] for other in words[number + 1 :]]
        behind = next((names[other] for other in readers if other in names), ())
        read_words = []
        for name, stated in _split(text, names):
            units = _named(names, name, model)
            if name in read:
                raise UsageError(f"{Flag('chain')}: {name!r} is named twice, and a chain has each layer once")
            read.add(name)
            read_words.append(_reading(name, stated, units, model, behind if x is None else ()))
        word = read_words[0] if len(read_words) == 1 else _both_ways(text, read_words)
        chosen |= {unit.name: unit for unit in (*word.units, *word.backward)}
        if x is None:
            build = LayerRow(word.width)
            x = build.begin
        assert build is not None
        x, before = _applied(build, word, x, before), word.text
    assert build is not None and x is not None
    axes = "(batch, time) of whole numbers" if build.begin.dtype == "int64" else "(batch, time, values)"
    order_note = [f"the order of its layers is the caller's: {' '.join(words)}"] if len(names) > 1 else []
    note = f"its input is {axes}, whatever batch_first says where it was trained"
    assumed = [
        f"assumed: {question.layer or 'every layer'}: {question.option}={question.assumed}; {question.why}"
        for question in model.questions
        if question.option != "nonlinearity"  # words answer that one
    ]
    described = build.described(x, [*order_note, note, *assumed])
    return model.replace(units=tuple(chosen.get(unit.name, unit) for unit in model.units)), described


def _split(word: str, names: Container[str]) -> list[tuple[str, str]]:
    """Return the names of the layers in a word, and what it states of each."""
    texts = [word] if word in names else word.split("+")
    parts = [text.rpartition(":") if ":" in text and text not in names else (text, "", "") for text in texts]
    return [(name, stated) for name, _, stated in parts]


def _named(names: dict[str, tuple[Unit, ...]], name: str, model: Model) -> tuple[Unit, ...]:
    """Return the layers that a word names: by the word itself, a whole name, or the end of one. Raises UsageError."""
    matching = [
        text for text, units in names.items() if name == text or any(re.sub(r"\[\d+\]$", "", u.name).endswith(f".{name}") for u in units)
    ]
    matching += [text for text, units in names.items() if text not in matching and re.sub(r"\[\d+\]$", "", units[0].name) == name]
    if name in names:
        matching = [name]
    if len(matching) == 1:
        return names[matching[0]]
    what = f"several layers end so: {', '.join(matching)}" if matching else f"{model.title} has {', '.join(names)}"
    functions = f"; functions are {', '.join(FUNCTIONS)}; {', '.join(STEPS)} make one step of a sequence, and {SKIP} adds the input"
    raise UsageError(f"{Flag('chain')}: {name!r} names no layer: {what}{functions}")


def _reading(name: str, stated: str, units: tuple[Unit, ...], model: Model, behind: tuple[Unit, ...]) -> _Word:
    """Return the reading of a named layer. Raises UsageError if the weights do not show it, or rule it out.

    behind  the layers that read the first layer's output: they show whether a matrix without a bias is an embedding
    """
    words = list(_readings(name, units, model))
    kinds = [word.kind for word in words]
    if not words:
        why = {"batch_norm": "its epsilon", "layer_norm": "its epsilon", "conv": "its padding and dilation"}
        lacking = next((why[kind] for kind in units[0].kinds if kind in why), "what it computes")
        raise UsageError(
            f"{Flag('chain')}: {name!r} cannot be a layer of a chain: weights do not show {lacking}. Export the model itself, as a live "
            "module or as a file that states it"
        )
    if words[0].kind == "recurrent":
        return replace(words[0], units=tuple(_decided(unit, name, stated, model) for unit in units))
    if words[0].kind == "multiplicative":
        if stated not in _GATES:
            raise UsageError(
                f"{Flag('chain')}: weights do not show the order of the gates of {name!r}, a multiplicative LSTM. Write {name}:ifog "
                "(input, forget, output, candidate), as the code of those who proposed it has them, or another order"
            )
        return replace(words[0], gates=stated)
    if stated and stated not in kinds:
        raise UsageError(
            f"{Flag('chain')}: '{name}:{stated}' does not fit its weights, which are those of a layer of kind {' or '.join(kinds)}"
        )
    if not stated and "embedding" in kinds and behind:
        widths = {word.width for word in _readings("", behind, model)}
        fitting = [word for word in words if word.gives in widths and word.kind != "prelu"]
        if len(fitting) > 1:
            raise UsageError(
                f"{Flag('chain')}: weights do not show whether {name!r} is an embedding. Write {name}:embedding or {name}:dense"
            )
        return (fitting or words)[0]
    return next(word for word in words if word.kind == (stated or kinds[0]))


def _both_ways(text: str, words: Sequence[_Word]) -> _Word:
    """Return two recurrent layers as the directions of one. Raises UsageError for others."""
    forward, backward = words[0], words[-1]
    ways = [unit.stack.num_directions for word in words for unit in word.units if unit.stack is not None]
    if len(words) != 2 or set(ways) != {1} or {word.kind for word in words} != {"recurrent"} or forward.width != backward.width:
        raise UsageError(
            f"{Flag('chain')}: {text!r} is not two recurrent layers of one direction that read as many values: + makes them the directions "
            "of one layer"
        )
    return replace(forward, text=text, gives=forward.gives + backward.gives, backward=backward.units)


def _decided(unit: Unit, name: str, stated: str, model: Model) -> Unit:
    """Return a recurrent layer with the function that a caller states of it, where its file does not. Raises UsageError without one."""
    asked = [question for question in model.questions if question.option == "nonlinearity"]
    assert unit.stack is not None
    if unit.stack.cell.kind == "rnn" and asked and stated not in _RNN:
        raise UsageError(f"{Flag('chain')}: weights do not show the function of the RNN {name!r}. Write {name}:tanh or {name}:relu")
    if stated and (stated not in _RNN or not asked or unit.stack.cell.kind != "rnn"):
        raise UsageError(f"{Flag('chain')}: {name!r} is {unit.stack.describe()}, and ':{stated}' does not describe it. Leave it out")
    if not stated:
        return unit
    cell = replace(unit.stack.cell, activation=replace(unit.stack.cell.activation, name=stated))
    layers = tuple(replace(layer, directions=tuple(way.replace(cell=cell) for way in layer.directions)) for layer in unit.stack.layers)
    return unit.replace(stack=unit.stack.replace(layers=layers))


def _applied(build: LayerRow, word: _Word, x: SourceTensor, before: str) -> SourceTensor:
    """Add the layers of a word. Raises UsageError where they do not read what stands before."""
    unit = word.units[0]
    if word.kind == "embedding":
        if x.dtype != "int64":
            raise UsageError(
                f"{Flag('chain')}: the embedding {word.text!r} stands behind {before!r}, and reads whole numbers: put it first"
            )
        return build.layer(kinds.Embedding(input_size=word.rows, output_size=word.gives), unit, x, (*x.dims, word.gives), "float32")
    width = x.dims[-1]
    if width != word.width and not (word.kind == "prelu" and word.width == 1):
        raise UsageError(f"{Flag('chain')}: {word.text!r} reads {word.width} values, and {before!r} gives {width}")
    if word.kind == "prelu":
        return build.prelu(unit, x, word.width)
    if word.kind == "dense":
        return build.dense(unit, x, word.gives, len(unit.names) > 1)
    if x.rank != 3:
        raise UsageError(f"{Flag('chain')}: {word.text!r} reads a sequence, and {before!r} gives one step")
    if word.kind == "multiplicative":
        return build.multiplicative(word.units, x, word.gives, word.gates)
    return build.recurrent(word.units, x) if not word.backward else build.both_ways(word.units, word.backward, x)


def _worked(build: LayerRow, word: str, x: SourceTensor, before: str) -> SourceTensor:
    """Add what a word does that names no layer. Raises UsageError where it cannot."""
    if word in STEPS:
        if x.rank != 3:
            raise UsageError(f"{Flag('chain')}: {word!r} stands behind {before!r}, which gives one step already")
        return _one_step(build, word, x, before)
    if word == SKIP:
        begin = build.begin
        if begin.dtype != "float32" or x.rank != begin.rank:
            raise UsageError(f"{Flag('chain')}: {SKIP!r} adds the input, which has other axes or whole numbers")
        width, most = x.dims[-1], begin.dims[-1]
        if not isinstance(width, int) or not isinstance(most, int) or width > most:
            raise UsageError(f"{Flag('chain')}: {SKIP!r} adds the first {width} values of the input, and it has {most}")
        return build.plus_input(x, begin)
    return activation(build, x, word)


def _one_step(build: LayerRow, word: str, x: SourceTensor, before: str) -> SourceTensor:
    """Add what makes one step of a sequence. Raises UsageError for last states of what has none."""
    if word == "last":
        return build.select(x, 1, -1)
    if word != "final":
        return reduced(build, x, word, (1,), False)
    output, finals = build.finals or (None, ())
    if output is not x:
        raise UsageError(
            f"{Flag('chain')}: 'final' is the last state of a recurrent layer, and stands behind {before!r}. Write it behind one"
        )
    return finals[0] if len(finals) == 1 else build.concatenate(finals, 1)
