"""Bring a stack into the form that a framework's cell can hold, by exact rewrites, or say why not.

`represent` goes through what a cell may have, feature by feature. What the target has stays as it
is; what it lacks is rewritten where an exact rewrite exists; everything else is refused with
the equation that differs, the value that stands in the way, and what the user can do.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from rnnconvert import rewrites
from rnnconvert.cells import Activation
from rnnconvert.errors import RefusedError
from rnnconvert.layout import Layout
from rnnconvert.rewrites import Rewrite, Step, each, largest
from rnnconvert.weights import BIAS_PARTS, Direction, Layer, Recurrent

ACCEPTS: dict[str, tuple[str, str]] = {
    "merge": ("concat", "you join the last layer's directions yourself"),
    "output_order": ("time", "you put the outputs of a go_backwards layer in processing order yourself"),
    "initial_state": ("call", "you pass the learned initial state at every call"),
    "reverse": ("flipped", "you flip the sequences before, and the outputs after, a layer that reads from the end"),
}
"""What a caller may take over: option, the value that says so, and what it means."""


@dataclass
class _Work:
    """A stack on its way into a layout."""

    stack: Recurrent
    layout: Layout
    accepted: frozenset[str]
    steps: list[Step] = field(default_factory=list)

    @property
    def target(self) -> str:
        return self.layout.class_name or self.layout.name

    def done(self, rewrite: Rewrite, detail: str, exact: bool | None = None) -> None:
        bit_exact = rewrite.bit_exact if exact is None else exact
        self.steps.append(Step(rewrite.name, self.stack.name, detail, bit_exact))

    def refuse(self, feature: str, reason: str, remedy: str = "") -> RefusedError:
        return RefusedError(feature, self.target, reason, remedy, self.stack.name)

    def every(self, test: Callable[[Direction], object]) -> list[Direction]:
        return [direction for _, _, direction in self.stack.directions() if test(direction)]


@dataclass(frozen=True)
class Represented:
    """A stack in the form that a layout holds, and the rewrites that brought it there."""

    stack: Recurrent
    layout: Layout
    steps: tuple[Step, ...]


@np.errstate(all="ignore")  # numbers that are not finite are looked at like any other
def represent(stack: Recurrent, layouts: Sequence[Layout], accept: Iterable[str] = ()) -> Represented:
    """A stack in the form of the first of a framework's layouts that can hold it.

    accept  what the caller takes over, names of ACCEPTS

    Raises RefusedError where no exact rewrite leads there.
    """
    cells = [direction.cell for _, _, direction in stack.directions()]
    mixed = len({(cell.kind, cell.reset_after) for cell in cells}) > 1
    if mixed and not layouts[0].holds.differing:
        raise RefusedError(
            "two directions or layers of different kinds", layouts[0].framework,
            " and ".join(sorted({cell.kind for cell in cells})) + " cannot share one set of arrays",
            "Split them: --set directions=split or --set stack=split.", stack.name,
        )  # fmt: skip
    work = _Work(stack, _choose(stack, layouts), frozenset(accept))
    settled = mixed and work.layout.holds.differing
    with _within_range(work.target):
        if settled:
            _each_by_itself(work, layouts)
        for feature in _FEATURES:
            if not settled or feature in _OF_STACKS:
                feature(work)
    return Represented(work.stack, work.layout, tuple(work.steps))


@contextlib.contextmanager
def _within_range(target: str) -> Iterator[None]:
    """Refuse a rewrite that makes a finite weight infinite."""
    try:
        with np.errstate(over="raise"):
            yield
    except FloatingPointError:
        raise RefusedError(
            "weights this large", target, "a rewrite would make one of them infinite in its element type",
            "Convert the source's weights to a type of more range first.",
        ) from None  # fmt: skip


def _each_by_itself(work: _Work, layouts: Sequence[Layout]) -> None:
    """Bring every direction into the layout of its own cell, where a stack has cells of several kinds."""
    layers = []
    for layer in work.stack.layers:
        changed = []
        for direction in layer.directions:
            single = Recurrent(work.stack.name, (Layer((direction,)),))
            own = _Work(single, _choose(single, layouts), work.accepted)
            for feature in _FEATURES:
                if feature not in _OF_STACKS:
                    feature(own)
            work.steps += [step for step in own.steps if step not in work.steps]
            changed.append(own.stack.first)
        layers.append(Layer(tuple(changed), layer.merge))
    projected = [d for layer in layers for d in layer.directions if d.projection_size]
    if projected and "projection" not in work.layout.part_names:
        raise work.refuse("a projection beside cells of another kind", "folding needs one in each", "Split the stack.")
    work.stack = work.stack.but(layers=tuple(layers))


def _choose(stack: Recurrent, layouts: Sequence[Layout]) -> Layout:
    of_kind = [one for one in layouts if one.kind == stack.cell.kind and one.writable]
    # A cell whose gates are its own does not go where one of them has no arrays.
    of_kind = [one for one in of_kind if one.coupled in ("", stack.cell.coupled)]
    if not of_kind:
        named = {"rnn": "a plain RNN", "gru": "a GRU", "lstm": "an LSTM"}[stack.cell.kind]
        raise RefusedError(named, layouts[0].framework, "it has no such cell", "", stack.name)
    same = [layout for layout in of_kind if layout.reset_after == stack.cell.reset_after]
    return (same or of_kind)[0]


def _read_out(work: _Work) -> None:
    if work.stack.readout and not work.layout.holds.readout:
        raise work.refuse(
            "a matrix behind the last layer", f"what it gives is multiplied by a matrix of shape {work.stack.readout[0].shape}, "
            "and these arrays have no place for it", "Convert to onnx or keras, where the matrix is written behind the layer.",
        )  # fmt: skip


def _beyond(work: _Work) -> None:
    for beyond in work.stack.beyond:
        value, meaning = ACCEPTS[beyond.option]
        if beyond.option not in work.accepted:
            remedy = f"Take it over and say so, --set {beyond.option}={value}: {meaning}."
            raise work.refuse(beyond.feature, beyond.reason, remedy)
        work.steps.append(Step(beyond.option, work.stack.name, f"{beyond.feature} left to the caller", True))
    work.stack = work.stack.but(beyond=())


def _reset_gate(work: _Work) -> None:
    wanted = work.layout.reset_after
    others = work.every(lambda d: d.cell.kind == "gru" and d.cell.reset_after != wanted)
    for direction in others:
        matrix = np.asarray(direction.arrays["recurrent", "n"])
        off = matrix - np.diag(np.diag(matrix))
        value, index = largest(off)
        equations = ("n = act(W x + b + R (r * h))", "n = act(W x + b + r * (R h + b_r))")
        if value:
            raise work.refuse(
                "a GRU with the reset gate " + ("after" if direction.cell.reset_after else "before") + " the product",
                f"it computes {equations[bool(direction.cell.reset_after)]} and the target {equations[bool(wanted)]}; "
                f"these agree only where R is diagonal, and R of gate n has {value:.6g} at {index}",
                "Keras (reset_after), ONNX (linear_before_reset) and TensorFlow have both cells"
                " (formats keras, onnx); or train the target's own cell.",
            )
        _no_candidate_bias(
            work,
            direction,
            "the target's cell has no such term",
            "Convert to a format whose GRU has the reset gate after the product.",
        )
    if others:
        work.stack = each(
            work.stack,
            lambda d: rewrites.move_reset_gate(d) if d.cell.kind == "gru" and d.cell.reset_after != wanted else d,
        )
        exact = bool(others[0].cell.reset_after) or all(rewrites.sums_exactly(direction) for direction in others)
        work.done(rewrites.MOVE_RESET_GATE, "reset gate moved: the candidate's recurrent matrix is diagonal", exact)


def _no_candidate_bias(work: _Work, direction: Direction, instead: str, remedy: str) -> None:
    """Refuse what no other place can take: the bias that the reset gate multiplies."""
    bias = direction.get("recurrent_bias", "n") if direction.cell.reset_after else None
    if bias is not None and bias.any():
        raise work.refuse(
            "a recurrent candidate bias inside the reset product",
            f"r * (R h + b_r) has b_r = {largest(bias)[0]:.6g}, and {instead}",
            remedy,
        )


def _skip_input(work: _Work) -> None:
    """Keep an input that is read unweighted where the target's first layer can read it so, in all its directions."""
    if "input" not in work.layout.part_names:
        return
    kept = work.layout.holds.skip_input and all(d.skip_input for d in work.stack.layers[0].directions)
    first = work.stack.layers[:1] if kept else ()
    _write_identities(work, [d for layer in work.stack.layers[len(first) :] for d in layer.directions])


def _write_identities(work: _Work, directions: Sequence[Direction]) -> None:
    """Give those of these directions weights that read their input unweighted."""
    skipping = {id(direction) for direction in directions if direction.skip_input}
    if skipping:
        work.stack = each(work.stack, lambda d: rewrites.write_identity(d) if id(d) in skipping else d)
        work.done(rewrites.WRITE_IDENTITY, "the input that was read unweighted has identity matrices")


def _unweighted(work: _Work) -> None:
    """A target that adds its input as it is takes a layer whose input matrices are the identity."""
    if "input" in work.layout.part_names:
        return
    weighted = work.every(lambda d: not d.skip_input)
    for direction in weighted:
        for gate in direction.cell.gates:
            matrix = np.asarray(direction.arrays["input", gate])
            if matrix.shape[0] != matrix.shape[1] or not np.array_equal(
                matrix, np.eye(len(matrix), dtype=matrix.dtype)
            ):
                raise work.refuse(
                    "weights of the input", f"it computes a = x + R h, and W of gate {gate} has the shape {matrix.shape} and is "
                    "no identity", "Multiply what it reads by W before it; or convert to another format.",
                )  # fmt: skip
    if weighted:
        work.stack = each(work.stack, lambda d: rewrites.drop(d, "input"))
        work.done(rewrites.DROP_IDENTITY, "identity matrices of the input left out")


def _coupled(work: _Work) -> None:
    def is_written(direction: Direction) -> bool:
        return bool(direction.cell.coupled) and direction.cell.coupled not in (
            *work.layout.holds.coupled,
            work.layout.coupled,
        )

    coupled = work.every(is_written)
    for direction in coupled:
        gate = direction.cell.gate_activation
        if not (gate.name == "sigmoid" or (gate.name == "hard_sigmoid" and gate.beta == 0.5)):
            raise work.refuse(
                "coupled gates", f"1 - act(a) = act(-a) holds for sigmoid, not for {gate}",
                "Convert to ONNX, whose LSTM has input_forget.",
            )  # fmt: skip
        uneven = [clip for clip in direction.cell.clips if clip.kind == "gates" and clip.low != -clip.high]
        if uneven:
            raise work.refuse(
                "coupled gates", f"1 - act(clip(a)) = act(clip(-a)) holds for bounds alike, not for {uneven[0]}",
                "If your activations never reach the bound, say so: --set clip=none.",
            )  # fmt: skip
    if coupled:
        _write_identities(work, coupled)  # an input without weights cannot be negated
        which = " and ".join(sorted({"f = 1 - i" if d.cell.coupled == "f" else "i = 1 - f" for d in coupled}))
        work.stack = each(work.stack, lambda d: rewrites.write_out_coupled_gate(d) if is_written(d) else d)
        work.done(rewrites.COUPLED_GATE, f"{which} written out as a gate of its own")


def _constants(work: _Work) -> None:
    holds = work.layout.holds

    def wanted(direction: Direction) -> dict[str, float]:
        kept = {gate: value for gate, value in direction.cell.constants.items() if gate in holds.chosen}
        return {**holds.constants, **kept}

    different = work.every(lambda d: _in_force(d.cell.constants) != _in_force(wanted(d)))
    if different:
        own, other = (
            ", ".join(f"{value:+g} on gate {gate}" for gate, value in constants.items() if value)
            for constants in (different[0].cell.constants, wanted(different[0]))
        )
        said = [f"run-time constants folded into the bias: {own}"] if own else []
        said += [f"what the target adds at run time taken off the bias: {other}"] if other else []
        work.stack = each(work.stack, lambda d: rewrites.fold_constants(d, wanted(d)))
        work.done(rewrites.FOLD_CONSTANTS, "; ".join(said))


def _in_force(constants: Mapping[str, float]) -> dict[str, float]:
    return {gate: value for gate, value in constants.items() if value}


def allows(allowed: Sequence[str | Activation], activation: Activation) -> bool:
    """Whether a list of functions has this one; a bare name stands for any constants."""
    return any(entry in ("any", activation.name) or entry == activation for entry in allowed)


def _activations(work: _Work) -> None:
    _function(work, "activation", work.layout.holds.activations)
    if work.layout.kind != "rnn":
        _function(work, "gate_activation", work.layout.holds.gate_activations)
    if work.layout.kind == "lstm":
        _output_function(work)


def _function(work: _Work, role: str, allowed: Sequence[str | Activation]) -> None:
    """One function of the cell, as it is or as the target's other hard_sigmoid."""
    while outside := work.every(lambda d: not allows(allowed, getattr(d.cell, role))):
        own: Activation = getattr(outside[0].cell, role)
        other = next((a for a in allowed if isinstance(a, Activation) and a.name == own.name), None)
        clipped = any(clip.kind == "gates" for direction in outside for clip in direction.cell.clips)
        if own.name != "hard_sigmoid" or other is None or clipped:
            raise _refuse_activation(work, role, own, allowed)
        _write_identities(work, outside)  # nor scaled
        work.stack = each(work.stack, _scaled(role, own, other))
        work.done(rewrites.SCALE_HARD_SIGMOID, f"{own} written for {other}")


def _scaled(role: str, own: Activation, other: Activation) -> Callable[[Direction], Direction]:
    return lambda d: rewrites.scale_hard_sigmoid(d, other, role) if getattr(d.cell, role) == own else d


def _output_function(work: _Work) -> None:
    holds = work.layout.holds
    for direction in work.every(lambda d: True):
        cell = direction.cell
        if holds.output_activation == "same" and cell.output_activation != cell.activation:
            raise work.refuse(
                f"an output through {cell.output_activation}",
                f"h = o * act(c) uses the candidate's function there, which is {cell.activation}",
                "Convert to ONNX, whose LSTM has three functions.",
            )
        if holds.output_activation != "same" and not allows(holds.activations, cell.output_activation):
            raise _refuse_activation(work, "output_activation", cell.output_activation, holds.activations)


def _refuse_activation(work: _Work, role: str, own: Activation, allowed: Sequence[str | Activation]) -> RefusedError:
    what = {"gate_activation": "its gates", "activation": "its candidate", "output_activation": "its output"}[role]
    known = "" if own.known else " (a function that is not known here)"
    return work.refuse(
        f"{what} through {own}{known}",
        f"the target computes {', '.join(str(a) for a in allowed)} there",
        "Convert to keras or onnx, which have more functions; or train with the target's function.",
    )


def _peepholes(work: _Work) -> None:
    if "peephole" in work.layout.part_names:
        return
    with_peepholes = work.every(lambda d: d.has_peepholes)
    for direction in with_peepholes:
        for gate in ("i", "f", "o"):
            peephole = direction.get("peephole", gate)
            if peephole is not None and peephole.any():
                value, index = largest(peephole)
                raise work.refuse(
                    "peepholes",
                    f"gate {gate} adds p * c to its pre-activation, p is up to {value:.6g} (unit {index[0]}), "
                    "and the target's equations have no such term",
                    "Convert to ONNX, whose LSTM has peepholes.",
                )
    if with_peepholes:
        work.stack = each(work.stack, lambda d: rewrites.drop(d, "peephole"))
        work.done(rewrites.DROP_ZEROS, "peepholes dropped: all are zero")


_CLIP_PLACES = {
    "gates": "a = clip(W x + b + R h) in every gate",
    "cell": "c' = clip(f * c + i * g) before the output reads it",
    "state": "cuDNN's clip of the cell state",
    "projection": "h' = clip(P m)",
}


def _clips(work: _Work) -> None:
    """Keep the clips that the target can have; refuse one that it lacks, and a cell without one that it always has."""
    fixed, open_kinds = work.layout.holds.fixed_clips, work.layout.holds.open_clips
    kinds = (*open_kinds, *(clip.kind for clip in fixed))
    for direction in work.every(lambda d: True):
        for clip in direction.cell.clips:
            if clip.kind in open_kinds or clip in fixed or not np.isfinite([clip.low, clip.high]).any():
                continue
            always = [str(one) for one in fixed if one.kind == clip.kind]
            target = f"clips something else ({', '.join(kinds)})" if kinds else "has no clip"
            raise work.refuse(
                f"a clip ({clip})",
                f"it computes {_CLIP_PLACES[clip.kind]}, and the target "
                + (f"always has {always[0]}" if always else target),
                "If your activations never reach the bound, say so: --set clip=none.",
            )
        for clip in fixed:
            if clip not in direction.cell.clips:
                raise work.refuse(
                    "a cell without a clip", f"the target always computes {_CLIP_PLACES[clip.kind]} ({clip})",
                    "If this class can do without, write the kind alone in its layout, without bounds.",
                )  # fmt: skip
    if work.every(lambda d: any(clip.kind not in kinds for clip in d.cell.clips)):
        work.stack = each(
            work.stack,
            lambda d: d.but(cell=d.cell.but(clips=tuple(c for c in d.cell.clips if c.kind in kinds))),
        )


def _projection(work: _Work) -> None:
    projected = work.every(lambda d: d.projection_size)
    if not projected or ("projection" in work.layout.part_names and _fits_projection(work, projected)):
        return
    if not work.layout.holds.readout:
        raise work.refuse(
            "a projection as wide as the cell" if "projection" in work.layout.part_names else "a projection",
            f"h' = P m with P of shape {(projected[0].projection_size, projected[0].hidden_size)}; folding it into the "
            "recurrent matrix leaves a matrix on the output, which these arrays have no place for",
            "Convert to onnx or keras, where the matrix is written behind the layer.",
        )
    if len(projected) != len(work.every(lambda d: True)):
        raise work.refuse("a projection in some layers only", "folding needs one in each", "Split the stack.")
    for direction in projected:
        learned = direction.get("initial_hidden")
        # To leave it to the caller would not help: there is no state to pass to the folded cell either.
        if learned is not None and learned.any():
            raise work.refuse(
                "a projection with a learned initial state",
                "folding needs an m_0 with P m_0 = h_0, which may not exist",
                "Convert to pytorch or cudnn, whose LSTM has projections, with --set initial_state=call.",
            )
    below = work.stack.layers[:-1] if work.stack.join == "layer" else ()
    if any(layer.merge == "mul" for layer in below):
        raise work.refuse(
            "projected directions joined by mul", "a product of projections is no matrix times a product, and folding "
            "needs one for the layer above", "Split the stack into layers: --set stack=split.",
        )  # fmt: skip
    if any(layer.merge in ("sum", "ave") for layer in below):
        work.stack = rewrites.fold_merges(work.stack)
        work.done(rewrites.FOLD_MERGE, "sums of directions folded into the layer above")
    size = projected[0].projection_size
    _leave_out_state(work, "initial_hidden")
    work.stack = rewrites.fold_projection(work.stack)
    work.done(
        rewrites.FOLD_PROJECTION,
        f"projection to {size} folded into the recurrent matrices; a matrix follows the last layer, and its hidden "
        "states are those before the projection",
    )


def _fits_projection(work: _Work, projected: list[Direction]) -> bool:
    return work.layout.holds.full_projection or all(d.projection_size < d.hidden_size for d in projected)


def _initial_states(work: _Work) -> None:
    for part in ("initial_hidden", "initial_cell"):
        if not (work.layout.holds.initial_states and part in work.layout.part_names):
            _leave_out_state(work, part)
        elif not work.layout.holds.differing:
            _state_in_each(work, part)


def _state_in_each(work: _Work, part: str) -> None:
    """Zeros where one direction of a layer has a learned state and the other one starts from zero."""
    layers = list(work.stack.layers)
    for index, layer in enumerate(layers):
        if any((part, "") in direction.arrays for direction in layer.directions):
            layers[index] = Layer(tuple(rewrites.zero_state(d, part) for d in layer.directions), layer.merge)
    work.stack = work.stack.but(layers=tuple(layers))


def _leave_out_state(work: _Work, part: str) -> None:
    having = work.every(lambda d: (part, "") in d.arrays)
    learned = [value for d in having if (value := d.get(part)) is not None and value.any()]
    if learned and "initial_state" not in work.accepted:
        raise work.refuse(
            "a learned initial state",
            f"{part} is up to {largest(learned[0])[0]:.6g}, and these arrays start from zero unless the call says otherwise",
            "Pass it at every call and say so: --set initial_state=call.",
        )
    if not having:
        return
    work.stack = each(work.stack, lambda d: rewrites.drop(d, part))
    if learned:
        work.steps.append(Step("initial_state", work.stack.name, f"{part} left to the caller", True))
    else:
        work.done(rewrites.DROP_ZEROS, f"{part} dropped: it is zero")


def _biases(work: _Work) -> None:
    _bias_mode(work)
    for part in BIAS_PARTS:
        own = [gate for gate in work.stack.cell.gates if gate != work.layout.coupled]
        lacking = [gate for gate in own if (part, gate) not in work.layout.keys]
        if lacking and part in work.layout.part_names:
            _into_the_other(work, part, lacking)


def _into_the_other(work: _Work, part: str, lacking: Sequence[str]) -> None:
    """Sum the biases of gates that the target has no place for in one part into the other."""
    moved = work.every(lambda d: any(np.any(d.get(part, gate)) for gate in lacking))
    if moved:
        (into,) = {*BIAS_PARTS} - {part}
        exact = all(rewrites.sums_exactly(direction, lacking) for direction in moved)
        work.stack = each(work.stack, lambda d: rewrites.sum_biases(d, lacking, into))
        work.done(rewrites.SUM_BIASES, "the two biases of each gate but the candidate summed into one", exact)


def _bias_mode(work: _Work) -> None:
    modes = work.layout.holds.biases
    found = {direction.biases for direction in work.every(lambda d: True)}
    if len(found) == 1 and found <= set(modes):
        return
    if modes == ("none",):
        _no_biases(work)
        return
    wanted = next((mode for mode in ("both", "input") if mode in modes), modes[0] if modes else "")
    if wanted not in ("both", "input"):
        raise work.refuse(
            "these biases", f"only {wanted or 'none of its bias modes'} is asked for, and the layer has {', '.join(sorted(found))}",
            "Ask for two: --set bias_mode=double.",
        )  # fmt: skip
    if wanted == "input":
        _one_bias(work)
    if found == {"none"} and "none" in modes:
        return
    parts = ["input_bias", "recurrent_bias"] if wanted == "both" else ["input_bias"]
    if work.every(lambda d: d.biases != wanted):
        work.stack = each(work.stack, lambda d: rewrites.zero_biases(d, parts))
        work.done(rewrites.ZERO_BIASES, "the bias vectors that the target needs are written as zeros")


def _no_biases(work: _Work) -> None:
    """Leave out biases of zero, where the target has none."""
    for direction in work.every(lambda d: True):
        for (part, gate), source in direction.arrays.items():
            if part in BIAS_PARTS and np.any(source):
                raise work.refuse(
                    "biases", f"it adds none, and {part} of gate {gate} is up to {largest(np.asarray(source))[0]:.6g}",
                    "Convert to a format that has them (for cuDNN: --set bias_mode=double).",
                )  # fmt: skip
    work.stack = each(work.stack, lambda d: rewrites.drop(rewrites.drop(d, BIAS_PARTS[0]), BIAS_PARTS[1]))
    work.done(rewrites.DROP_ZEROS, "biases dropped: all are zero")


def _one_bias(work: _Work) -> None:
    two = work.every(lambda d: d.biases in ("both", "recurrent"))
    for direction in two:
        _no_candidate_bias(
            work,
            direction,
            "the target has one bias outside the product",
            "Convert to a format that keeps two biases.",
        )
    if two:
        exact = all(rewrites.sums_exactly(direction) for direction in two)
        work.stack = each(work.stack, lambda d: rewrites.sum_biases(d) if d.biases in ("both", "recurrent") else d)
        work.done(rewrites.SUM_BIASES, "the two biases of each gate summed into one", exact)


def _directions(work: _Work) -> None:
    stack, holds = work.stack, work.layout.holds
    if max(len(layer.directions) for layer in stack.layers) > holds.directions:
        raise work.refuse("two directions", "it reads one way", "Split them: --set directions=split.")
    ways = {tuple(direction.reverse for direction in layer.directions) for layer in stack.layers}
    usual = ways <= {(False,), (False, True)}
    if stack.output_order == "processing" and not holds.processing_order:
        feature = "outputs in processing order (go_backwards)"
        if ways != {(True,)}:
            raise _refuse_ways(work, feature, "its outputs stand at the time they belong to")
        _flipped(
            work, "output_order", feature, "its outputs stand at the time they belong to",
            "Flip the sequences before it and leave its outputs as they are",
        )  # fmt: skip
    elif ways == {(True,)} and not holds.reverse:
        _flipped(
            work, "reverse", "a layer that only reads from the end", "its one direction runs forward, h_t from h_(t-1)",
            "Flip the sequences before and the outputs after it",
        )  # fmt: skip
    elif not usual and not holds.reverse:
        raise _refuse_ways(work, "layers that read other ways", "a layer reads forward, or forward and backward")


def _flipped(work: _Work, option: str, feature: str, reason: str, remedy: str) -> None:
    """The stack as one that reads forward, if the caller flips its sequences."""
    if option not in work.accepted:
        raise work.refuse(feature, reason, f"{remedy}, and say so: --set {option}={ACCEPTS[option][0]}.")
    work.stack = each(work.stack.but(output_order="time"), lambda d: d.but(reverse=False))
    work.steps.append(Step(option, work.stack.name, "direction left to the caller: flip the sequences", True))


def _refuse_ways(work: _Work, feature: str, reason: str) -> RefusedError:
    """For what no flip before or after the whole stack makes right."""
    words = {False: "forward", True: "from the end"}
    ways = " then ".join(
        " beside ".join(words[direction.reverse] for direction in layer.directions) for layer in work.stack.layers
    )
    return work.refuse(
        feature, f"{reason}, and these read {ways}",
        "Convert to onnx, where every direction reads its own way; or split the stack: --set stack=split.",
    )  # fmt: skip


def _joins(work: _Work) -> None:
    stack, holds = work.stack, work.layout.holds
    if stack.num_directions == 1:
        return
    if stack.join == "end" and stack.num_layers > 1 and "end" not in holds.joins:
        work.stack = rewrites.join_with_zeros(stack)
        work.done(rewrites.JOIN_WITH_ZEROS, "directions that met only at the end joined at every layer, with zeros")
    if holds.layers and any(layer.merge in ("sum", "ave") for layer in stack.layers[:-1]):
        work.stack = rewrites.fold_merges(work.stack)
        work.done(rewrites.FOLD_MERGE, "sums of directions folded into the layer above")
    for index, layer in enumerate(work.stack.layers):
        last = index == work.stack.num_layers - 1
        if layer.merge in holds.merges or (last and layer.merge == "none") or len(layer.directions) == 1:
            continue
        if not last or "merge" not in work.accepted:
            raise work.refuse(
                f"directions joined by {layer.merge}",
                f"layer {index} gives {_MERGES[layer.merge]}, and the target concatenates",
                "Join the halves of the output yourself and say so: --set merge=concat." if last else
                "Split the stack into layers: --set stack=split.",
            )  # fmt: skip
        work.steps.append(Step("merge", stack.name, f"joining by {layer.merge} left to the caller", True))
        changed = (*work.stack.layers[:-1], Layer(layer.directions, "concat"))
        work.stack = work.stack.but(layers=changed)


_MERGES = {"sum": "f + b", "ave": "(f + b) / 2", "mul": "f * b", "concat": "[f; b]", "none": "f and b apart"}


def _alike(work: _Work) -> None:
    holds, stack = work.layout.holds, work.stack
    dtypes = {str(direction.dtype) for direction in work.every(lambda d: True)}
    for dtype in sorted(dtypes - set(holds.dtypes)):
        raise work.refuse(f"the element type {dtype}", f"it has {', '.join(holds.dtypes)}", "Choose one with --dtype.")
    if len(dtypes) > 1:
        raise work.refuse(
            "weights of several element types", f"these are {' and '.join(sorted(dtypes))}, and it computes in one",
            "Split them: --set stack=split or --set directions=split; or take one at a time with --layer.",
        )  # fmt: skip
    if holds.differing or stack.uniform:
        return
    layers = "layers" if len({str(layer.directions) for layer in stack.layers}) > 1 else "directions"
    raise work.refuse(
        f"{layers} that differ",
        "; ".join(sorted({repr(d)[11:-1] for d in work.every(lambda d: True)})) + " cannot share one set of arrays",
        "Split them: --set stack=split or --set directions=split.",
    )


_OF_STACKS = (_read_out, _beyond, _projection, _directions, _joins, _alike)
# In this order: a rewrite may rely on the ones before it (a coupled gate is written out before its weights are scaled).
_FEATURES = (
    _read_out, _beyond, _reset_gate, _coupled, _constants, _activations, _skip_input, _unweighted, _peepholes, _clips, _projection,
    _initial_states, _biases, _directions, _joins, _alike,
)  # fmt: skip
