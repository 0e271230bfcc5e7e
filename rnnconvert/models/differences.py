"""The settings next to the weights that change what a layer computes: compared, and named with their fix."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rnnconvert.core.printable import called
from rnnconvert.core.remedies import Flag
from rnnconvert.language import registry
from rnnconvert.language.layout import System
from rnnconvert.models.model import Model, Unit, weight_shape
from rnnconvert.models.pairs import FilledPair


@dataclass(frozen=True)
class SettingDifference:
    """One setting that differs in the target.

    layer           the target's layer
    option          what: epsilon, stride, batch_first ...
    target, source  how it is set
    matters         "function" if the outputs change, "training" if only training does
    fix             what the user can do
    """

    layer: str
    option: str
    target: Any
    source: Any
    matters: str
    fix: str

    def __str__(self) -> str:
        return f"{called(self.layer)}: {self.option} is {self.target} in the target and {self.source} in the source; {self.fix}"


_ELSEWHERE = {"padding_mode": "zeros", "rms_scaling": False, "mode": 0, "max_norm": None}
"""The value of a setting in a framework that does not have it."""
AS_FAR_AS_THE_KERNEL = "as far as the kernel reaches"
"""Where a transposed convolution of Keras ends by default."""
_TRAINING = ("momentum", "dropout", "input_dropout", "recurrent_dropout", "padding_index")


def differences(pair: FilledPair, target: Model, source: Model) -> Iterator[SettingDifference]:
    """Yield the differences between two paired layers, as far as both models say how they are set."""
    ours, theirs = _plain(pair.target), _plain(pair.source)
    if pair.kind == "group_norm":
        for model, unit, settings in ((target, pair.target, ours), (source, pair.source, theirs)):
            if settings.get("groups") == -1:  # Keras's way to say: one for each channel
                settings["groups"] = model.arrays[next(iter(unit.names.values()))].size
    if pair.kind in ("conv", "conv_transpose"):
        word = "kernel" if pair.kind == "conv" else "transposed_kernel"
        ours[word] = weight_shape(pair.target, pair.kind, target.arrays)[2:]
    # In its own framework a file of weights is loaded into the model that it is of: there nobody asks.
    if target.framework != source.framework:
        yield from _unsaid(pair)
    for option, default in _ELSEWHERE.items():
        for unit, stated, other in ((pair.source, theirs, ours), (pair.target, ours, theirs)):
            # The other's framework has no such setting, and would say others.
            if option in other and unit.facts and unit.stack is None and option not in unit.reading(pair.kind).facts:
                stated[option] = default
    for option in ours:
        if option not in theirs or _same(option, ours, theirs):
            continue
        matters = "training" if option in _TRAINING else "function"
        word = _system(target.framework).words.get(option, option)
        yield SettingDifference(
            pair.target.name, option, ours[option], theirs[option], matters, _fix(target.framework, option, word, theirs)
        )


def _unsaid(pair: FilledPair) -> Iterator[SettingDifference]:
    """Yield settings that one side does not state and whose usual value differs from the other side's."""
    for unit, side in ((pair.target, "target"), (pair.source, "source")):
        for option, default in unit.assumed.items():
            if option not in unit.reading(pair.kind).defaults:
                continue
            values = {"target": _value(pair.target, option), "source": _value(pair.source, option)}
            if values["target"] is None or values["source"] is None or _close(values["target"], values["source"]):
                continue
            fix = (
                f"the {side} does not state it, and {default:g} is the default of such a layer; if they are in fact "
                f"the same, confirm with {Flag('accept', option)}"
            )
            yield SettingDifference(pair.target.name, option, values["target"], values["source"], "function", fix)
            return


def _value(unit: Unit, option: str) -> Any:
    return unit.facts.get(option, unit.assumed.get(option))


def unconvertible(pair: FilledPair) -> Iterator[str]:
    """Yield the operations of one side that no setting of the other side's layer covers: the other side's own code has to do them."""
    # Of what is no difference of the two because one has it and the other's framework does not.
    seen = {option for option in _ELSEWHERE if _has_no(pair.source, pair.kind, option) or _has_no(pair.target, pair.kind, option)}
    for unit, other, side, others in (
        (pair.source, pair.target, "the source", "the target"),
        (pair.target, pair.source, "the target", "the source"),
    ):
        for option, does in _BESIDES.items():
            value = unit.facts.get(option)
            if option in other.facts or option in seen or value is None or not (text := does(value)):
                continue
            yield f"{pair.target.name}: {side} {text}; {others}'s own code has to do the same, which cannot be checked here"


def _has_no(unit: Unit, kind: str, option: str) -> bool:
    return bool(unit.facts) and unit.stack is None and option not in unit.reading(kind).facts


_OF_CONVOLUTIONS = ("stride", "padding", "dilation", "output_padding")


def unsaid(pair: FilledPair) -> Iterator[str]:
    """Yield the settings that were not compared because one side does not state them."""
    if pair.kind not in ("conv", "conv_transpose"):
        return
    for unit, other, side in ((pair.source, pair.target, "the source"), (pair.target, pair.source, "the target")):
        missing = [option for option in _OF_CONVOLUTIONS if option in other.facts and option not in unit.facts]
        if missing:
            yield f"{pair.target.name}: {side} does not state its {', '.join(missing)}: not compared"


_BESIDES: dict[str, Callable[[Any], str]] = {
    "activation": lambda value: f"applies {value} after it" if value != "linear" else "",
    "masking": lambda value: f"skips the steps that hold only {value.removeprefix('all ')}" if value != "none" else "",
    "forward": lambda value: f"computes it in a forward method of its own ({value})",
    "hooks": lambda value: f"runs hooks before or after it ({value})",
    "bag": lambda value: f"gives the {value} of several rows",
    "max_norm": lambda value: f"shortens rows that are longer than {value}",
    "padding_mode": lambda value: f"pads by {value}" if str(value).lower() != "zeros" else "",
    "rms_scaling": lambda value: "scales by the variance alone (rms_scaling)" if value else "",
    "mode": lambda value: f"normalises in mode {value}" if value else "",
    "axis": lambda value: "" if value == tuple(range(-len(value), 0)) else f"goes over the axes {value}",
    "mask_zero": lambda value: "masks the steps of token 0, which its recurrent layers skip" if value else "",
    "stateful": lambda value: "keeps its states from one batch to the next" if value else "",
    "input_dropout": lambda value: f"drops {value:g} of its inputs in training" if value else "",
    "recurrent_dropout": lambda value: f"drops {value:g} of its states in training" if value else "",
    "return_sequences": lambda value: "" if value else "gives only its last output",
}


def _system(framework: str) -> System:
    return registry.systems().get(framework) or System(framework, framework, "", "")


def _fix(framework: str, option: str, word: str, theirs: Mapping[str, Any]) -> str:
    value = theirs[option]
    if option == "momentum" and _system(framework).new_momentum:
        return f"for the same training make the layer with momentum={1 - value:.6g}"
    if option == "batch_first":
        return (
            f"make the layer with batch_first={value}, or accept the difference, {Flag('accept', 'batch_first')}, if your own code "
            "swaps the axes"
        )
    if option == "padding":
        return f"pad as the source does ({value}), or accept the difference, {Flag('accept', 'padding')}, if your own code pads"
    if option in _ELSEWHERE:
        return f"make the layer with {word}={value!r}, or accept the difference, {Flag('accept', option)}, if your own code does it"
    verb = "for the same training make" if option in _TRAINING else "make"
    spelled = f"{value:.6g}" if isinstance(value, float) else repr(value)
    return f"{verb} the layer with {word}={spelled}"


def _plain(unit: Unit) -> dict[str, Any]:
    """Return a layer's settings in one form: numbers for each axis as a tuple, functions by name."""
    settings: dict[str, Any] = {}
    for option, value in unit.facts.items():
        if isinstance(value, (list, tuple)):
            value = _settled(value) if option == "padding" else tuple(value)
        elif isinstance(value, str):
            value = value.lower()
        settings[option] = value
    return settings


def _settled(value: Any) -> Any:
    """Return numbers for each axis, with the two sides of an axis as one number if they are equal."""
    return tuple(_one_side(length) for length in value) if isinstance(value, (list, tuple)) else value


def _one_side(length: Any) -> Any:
    """Return how much is padded on each side, as one number where both sides are equal."""
    both = isinstance(length, (list, tuple)) and len(length) == 2 and length[0] == length[1]
    return length[0] if both else length


def _same(option: str, ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> bool:
    our_value, their_value = ours[option], theirs[option]
    if option == "output_padding":
        return _same_ends(our_value, their_value, ours)
    if option in ("stride", "dilation"):
        return _each(our_value, their_value) or our_value is None or their_value is None
    if option == "padding_mode" and _each(0 if ours.get("padding") == "valid" else ours.get("padding"), 0):
        return True  # nothing is padded
    if option == "padding":
        return _same_padding(our_value, their_value, ours)
    return _close(our_value, their_value)


def _close(ours: Any, theirs: Any) -> bool:
    """Return whether two settings are the same, one of which a file may hold in single precision."""
    if ours is None or theirs is None:
        return ours is theirs
    if isinstance(ours, float) or isinstance(theirs, float):
        return abs(float(ours) - float(theirs)) <= 1e-6 * max(abs(float(ours)), abs(float(theirs)))
    return bool(ours == theirs)


def _each(ours: Any, theirs: Any) -> bool:
    """Return whether two settings, one number or one for each axis, are the same."""
    left = ours if isinstance(ours, tuple) else (ours,)
    right = theirs if isinstance(theirs, tuple) else (theirs,)
    axes = max(len(left), len(right))
    return (left * axes)[:axes] == (right * axes)[:axes]


def _same_ends(our_value: Any, their_value: Any, ours: Mapping[str, Any]) -> bool:
    """Return whether two transposed convolutions end alike."""
    if AS_FAR_AS_THE_KERNEL in (our_value, their_value):
        axes = len(ours["transposed_kernel"])
        steps, spreads = (_for_each(ours.get(word, 1), axes) for word in ("stride", "dilation"))
        lengths = [(length - 1) * spread + 1 for length, spread in zip(ours["transposed_kernel"], spreads, strict=True)]
        reach = tuple(max(step - length, 0) for step, length in zip(steps, lengths, strict=True))
        our_value, their_value = (reach if value == AS_FAR_AS_THE_KERNEL else value for value in (our_value, their_value))
    return _each(our_value, their_value)


def _for_each(value: Any, axes: int) -> tuple[Any, ...]:
    several = value if isinstance(value, tuple) else (value,)
    return several * (axes if len(several) == 1 else 1)


def _same_padding(our_value: Any, their_value: Any, ours: Mapping[str, Any]) -> bool:
    """Return whether two frameworks pad alike; "same" is compared where it is a number of zeros on both sides."""
    words = [value for value in (our_value, their_value) if isinstance(value, str)]
    if len(words) == 2:
        return bool(our_value == their_value)
    if not words:
        return _each(our_value, their_value)
    number = their_value if isinstance(our_value, str) else our_value
    if words[0] == "valid":
        return _each(number, 0)
    if words[0] != "same" or "kernel" not in ours or not _each(ours.get("stride", 1), 1):
        return False  # behind a stride, and for causal padding, zeros stand on one side more than on the other
    spreads = _for_each(ours.get("dilation", 1), len(ours["kernel"]))
    zeros_at_ends = [(length - 1) * step for length, step in zip(ours["kernel"], spreads, strict=True)]
    return all(zeros % 2 == 0 for zeros in zeros_at_ends) and _each(number, tuple(zeros // 2 for zeros in zeros_at_ends))
