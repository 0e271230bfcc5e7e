"""Both whole models on the same inputs: compared at every recurrent layer's output, then at the end.

Rounding explains as much as a model's own outputs move when every weight is one unit in the last place off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert.containers.addresses import local
from rnnconvert.core.arrays import FLOATS, Array, epsilon
from rnnconvert.core.errors import RnnConvertError, UsageError
from rnnconvert.core.verdict import Limit, Verdict, Word
from rnnconvert.files.load import model_path
from rnnconvert.judging.comparison import OutputComparison, unlike
from rnnconvert.judging.judging import Output
from rnnconvert.judging.whole import SHAKES, WholeJudge
from rnnconvert.models.model import Model, Unit
from rnnconvert.models.readers import model_of
from rnnconvert.models.runners import DoesNotRunError, FileModel, ModelApart, ModelOutputs, ModelRunner, Tap, moved, opener, runners
from rnnconvert.running.inputs import in_order, named

Apply = Callable[..., Any]


class SourceDoesNotRunError(DoesNotRunError):
    """The reference model does not run on inputs, so that these say nothing about the other model."""


YOURS = "your inputs"
"""The label of runs on inputs that the user handed in, beside those on drawn ones."""


@dataclass(frozen=True)
class WholeModels:
    """Two whole models on the same inputs; true if they agree.

    comparisons  each recurrent layer's output and the models' own, in order, with the tolerance that would have passed
    unseen       layers whose outputs were not compared, and why
    notes        how a file's model was run, if not as it stands
    limits       what these inputs do not show
    """

    comparisons: tuple[OutputComparison, ...]
    unseen: tuple[str, ...]
    notes: tuple[str, ...] = ()
    limits: tuple[Limit, ...] = ()

    @property
    def conclusion(self) -> Verdict:
        """Equal only if everything that was compared agrees, and passing proves something of the models' own outputs."""
        outputs_compared = [comparison for comparison in self.comparisons if comparison.output.partition(" ")[0] == "output"]
        return Verdict.of(
            equal=all(comparison.passed or comparison.swamped for comparison in self.comparisons),
            compared=any(comparison.telling for comparison in outputs_compared) and not any(each.swamped for each in self.comparisons),
            limits=self.limits,
            scope="whole",
        )

    @property
    def telling(self) -> bool:
        """Whether passing proves something of everything that was compared: where values explode, rounding is as large as they are."""
        return all(comparison.telling for comparison in self.comparisons)

    @property
    def verdict(self) -> Word:
        """The verdict in a word."""
        return self.conclusion.word

    @property
    def exit_code(self) -> int:
        """The exit code of a command: 0 equal, 1 not equal, 5 if nothing was compared that tells anything."""
        return self.conclusion.exit_code()

    @property
    def equal(self) -> bool:
        """Whether the verdict is "equal"."""
        return bool(self.conclusion)

    def joined(self, other: WholeModels) -> WholeModels:
        """Return the comparisons and limits of these runs and of runs on other inputs together."""
        unseen, notes, limits = (
            tuple(dict.fromkeys((*ours, *theirs)))
            for ours, theirs in ((self.unseen, other.unseen), (self.notes, other.notes), (self.limits, other.limits))
        )
        return WholeModels((*self.comparisons, *other.comparisons), unseen, notes, limits)

    def __bool__(self) -> bool:
        return self.equal

    def __str__(self) -> str:
        several = len({comparison.case for comparison in self.comparisons}) > 1
        lines = [str(self.conclusion)]
        lines += [f"  {comparison}" + (f" ({comparison.case})" if several else "") for comparison in self.comparisons]
        lines += [f"  not compared: {text}" for text in self.unseen]
        lines += [f"  note: {text}" for text in self.notes]
        return "\n".join(lines)


@dataclass(frozen=True)
class ModelCalls:
    """How a model is called.

    inputs  an array, several, several by the names of the model's inputs, or the file that holds them
    apply   calls a tree of JAX's on inputs: a tree holds no code
    before  inputs of calls before, one after the other, so that stateful layers go on from there
    label   which inputs these are, in words
    """

    inputs: Any
    apply: Apply | None = None
    before: Any = ()
    label: str = "the inputs given"

    def runner(self, model: Model) -> ModelRunner | _CallersFramework:
        """Return the runner of a model. Raises UsageError for one without code."""
        runner = runners().get(model.framework)
        if runner is not None and not (self.apply is not None and getattr(runner, "BY_APPLY", False)):
            return runner
        if self.apply is None:
            raise UsageError(
                f"{model.title} holds no code. Hand in the function that calls it, as in apply=lambda tree, x: model.apply(tree, x)"
            )
        return _CallersFramework(self.apply)

    def run(self, model: Model, shakes: int = 0) -> tuple[ModelOutputs, list[ModelOutputs]]:
        """Return the outputs of a model, and its outputs with its weights moved, several times; none of these if it cannot be copied.

        Raises UsageError if its framework raises anything.
        """
        units = [unit for unit in model.units if unit.stack is not None]
        inputs, before = named(self.inputs), [named(call) for call in self.before]
        if isinstance(model.live, ModelApart):
            return model.live.ran(inputs, units, before, shakes)
        runner = self.runner(model)
        names = runner.input_names(model.live)
        arrays, earlier = in_order(inputs, names, model.title), [in_order(call, names, model.title) for call in before]

        def run(live: Any) -> ModelOutputs:
            return runner.run(live, arrays, units, earlier)

        try:
            ran = run(model.live)
        except RnnConvertError:
            raise
        except Exception as error:  # a framework raises what it likes
            text = (str(error).splitlines() or [type(error).__name__])[0]
            raise DoesNotRunError(f"{model.title} does not run on these inputs: {type(error).__name__}: {text}") from error
        try:
            return ran, [run(runner.shaken(model.live, seed)) for seed in range(shakes)]
        except UsageError:
            return ran, []


def compared(
    target: Any, source: Any, pairs: Iterable[tuple[str, str]], calls: ModelCalls, source_calls: ModelCalls | None = None
) -> WholeModels:
    """Run both models and compare them.

    pairs         the recurrent layers that belong together, target's and source's
    source_calls  how the source is called, None if that is the same

    Raises UsageError for a model that cannot be run, SourceDoesNotRunError if it is the source, ExecutorError where its framework
    fails at it.
    """
    other = source_calls or calls
    ours, our_notes = opened(target, calls)
    theirs, notes = opened(source, other)
    try:
        truth, shaken = other.run(theirs, SHAKES)
    except DoesNotRunError as error:
        raise SourceDoesNotRunError(str(error)) from error
    by_source = bool(shaken)
    ran_ours, our_shaken = calls.run(ours, 0 if by_source else SHAKES)
    rounding = _Rounding(ours, shaken or our_shaken, by_source, _coarse(ours, theirs))
    if not rounding.runs:
        raise UsageError("neither model can be copied, so the effect of rounding is unknown")
    comparisons, unseen = [], []
    for target_name, name in pairs:
        target_unit, source_unit = ours.unit(target_name), theirs.unit(name)
        if target_name not in ran_ours.taps or name not in truth.taps or target_unit is None or source_unit is None:
            unseen.append(f"{target_name or 'the layer'}: its output cannot be seen from outside")
            continue
        shakes = [ran.taps.get(name if by_source else target_name) for ran in rounding.runs]
        aligned = align([ran_ours.taps[target_name], truth.taps[name], *[tap for tap in shakes if tap is not None]], source_unit)
        if aligned is None:
            unseen.append(f"{target_name}: one model gives all its outputs joined, the other only the last ones")
            continue
        gave, expected, *moved = aligned
        axes = ("time", "batch", "unit") if expected.ndim == 3 else ("batch", "unit")
        comparisons.append(rounding.compare(Output(calls.label, target_name, axes), gave, expected, moved))
    for model, gives in ((ours, len(truth.outputs)), (theirs, len(ran_ours.outputs))):
        if gives == 1 and _is_a_layer(model) and len(truth.outputs) != len(ran_ours.outputs):
            ran_ours, truth = (replace(ran, outputs=ran.outputs[:1]) for ran in (ran_ours, truth))
            unseen.append(f"{model.title}: its last states, which the other model does not give")
    comparisons += list(_ends(ran_ours, truth, rounding, calls.label))
    return WholeModels(tuple(comparisons), tuple(unseen), (*notes, *our_notes))


def _is_a_layer(model: Model) -> bool:
    """Return whether a model is a recurrent layer and nothing else, which gives its states behind its output."""
    return any(unit.stack is not None and not unit.name.partition("[")[0] for unit in model.units)


def compared_with_kept(target: Any, names: Iterable[str], calls: ModelCalls, expected: Any) -> WholeModels:
    """Run the target and compare it with what the source gave for these inputs.

    names     the target's recurrent layers
    expected  the outputs, or the .npy or .npz file that holds them

    Raises what `compared` raises, and UnreadableError for another file.
    """
    ours, notes = opened(target, calls)
    # Those of a file were kept in the order of their names.
    outputs = sorted(named(expected), key=itemgetter(0)) if isinstance(expected, (str, Path)) else named(expected)
    truth = ModelOutputs(tuple(array for _, array in outputs), {})
    result, shaken = calls.run(ours, SHAKES)
    rounding = _Rounding(ours, shaken, False, _coarse(ours))
    if not rounding.runs:
        raise UsageError("the model cannot be copied, so the effect of rounding is unknown")
    unseen = tuple(f"{name}: only the outputs of the whole model were kept" for name in names)
    return WholeModels(tuple(_ends(result, truth, rounding, calls.label)), unseen, notes)


def opened(source: Any, calls: ModelCalls | None = None) -> tuple[Model, tuple[str, ...]]:
    """Return a model that runs, in the element type of its weights if possible, and how it was loaded and changed.

    calls  how it is called, if it is a file
    """
    if isinstance(source, (str, Path)):
        model = model_of(source)
        of_files = None if model.framework in runners() else opener(model.framework)
        in_executor = (of_files or (calls or ModelCalls(())).runner(model).open_file)(model_path(local(source)))
        return replace(model, live=in_executor), in_executor.notes
    if isinstance(source, ModelApart):
        return replace(source.model, live=source), source.notes
    model = model_of(source)
    exact = getattr(runners().get(model.framework), "exact", None)
    if exact is None:
        return model, ()
    live, note = exact(model.live)
    return replace(model, live=live), tuple(filter(None, [note]))


class _CallersFramework:
    """A framework whose models are trees without code: the caller's function runs them."""

    def __init__(self, apply: Apply) -> None:
        self.apply = apply

    def open_file(self, path: Path, config: Path | None = None) -> FileModel:
        """Raise UsageError: a file of arrays by their paths holds no code."""
        raise UsageError(f"{path} holds a tree without code. Hand it in as your function takes it: source=tree")

    def input_names(self, live: Any) -> Sequence[str]:
        """Return nothing: a function takes what it is handed."""
        return ()

    def run(self, live: Any, inputs: Sequence[Array], units: Sequence[Unit], before: Sequence[Sequence[Array]] = ()) -> ModelOutputs:
        """Return the outputs of the function; its inner layers are not seen, and a tree keeps nothing from earlier calls."""
        outputs_given = self.apply(live, *[np.array(array) for array in inputs])
        outputs = outputs_given if isinstance(outputs_given, (list, tuple)) else [outputs_given]
        return ModelOutputs(tuple(np.array(output) for output in outputs), {})

    def shaken(self, live: Any, seed: int) -> Any:
        """Return a tree with every floating-point array moved."""
        model = model_of(live)
        assert model.fill is not None, "a tree that was handed in is filled by making a new one"
        generator = np.random.default_rng(seed)
        arrays = {name: np.asarray(array) for name, array in model.arrays.items() if str(array.dtype) in FLOATS}
        new = {name: moved(array, epsilon(array.dtype), generator).astype(array.dtype) for name, array in arrays.items()}
        return model.fill(new)


@dataclass(frozen=True)
class _Rounding:
    """The differences that rounding explains.

    runs       outputs of the model with its weights moved, each time otherwise
    by_source  whether that model is the source, and not the target
    coarse     how many units in the last place of 1 functions of either framework are off, however small their values are
    """

    target: Model
    runs: Sequence[ModelOutputs]
    by_source: bool
    coarse: float

    def compare(self, output: Output, value: Array, truth: Array, shaken: Sequence[Array]) -> OutputComparison:
        """Compare an output with the source's, given what it was in each of the runs."""
        if value.shape != truth.shape:
            return unlike(output.case, output.name, value.shape, truth.shape)
        dtypes = (array.dtype for array in self.target.arrays.values() if array.dtype.kind == "f")
        coarsest = max(dtypes, key=lambda dtype: float(np.finfo(dtype).eps), default=value.dtype)
        moves: dict[str, Any] = {"truth_moved" if self.by_source else "moved": shaken}
        comparison = WholeJudge(coarsest).compare(output, value, truth, **moves)
        if comparison.passed or not self.coarse:
            return comparison
        return WholeJudge(coarsest, coarse=self.coarse).compare(output, value, truth, **moves)


def _coarse(*models: Model) -> float:
    """Return how coarse the functions are with which models run: of a live one they are as usual."""
    return max((model.live.coarse for model in models if isinstance(model.live, ModelApart)), default=0.0)


def _ends(result: ModelOutputs, truth: ModelOutputs, rounding: _Rounding, label: str) -> Iterable[OutputComparison]:
    """Yield the comparisons of the models' own outputs."""
    if len(result.outputs) != len(truth.outputs):
        raise UsageError(
            f"the target gives {len(result.outputs)} outputs and the source {len(truth.outputs)}. Compare models that give equally many"
        )
    for number, (result_output, expected) in enumerate(zip(result.outputs, truth.outputs, strict=True)):
        name = "output" if len(result.outputs) == 1 else f"output {number}"
        shaken = [ran.outputs[number] for ran in rounding.runs]
        axes = tuple(f"axis {axis}" for axis in range(expected.ndim))
        yield rounding.compare(Output(label, name, axes), result_output, expected, shaken)


# Outputs of two whole models, brought to the same steps.


def align(taps: Sequence[Tap], unit: Unit) -> list[Array] | None:
    """Return the outputs of several models, all as sequences or all as last outputs; None if that is impossible.

    If one of them knows the lengths of its sequences, the steps after them are left out: frameworks fill them differently.
    """
    lengths = next((tap.lengths for tap in taps if tap.lengths is not None), None)
    if all(tap.sequence is not None for tap in taps):
        return [_counted(tap.sequence, lengths) for tap in taps if tap.sequence is not None]
    last = [_last(tap, unit, lengths) for tap in taps]
    return None if any(tap is None for tap in last) else [tap for tap in last if tap is not None]


def _counted(sequence: Array, lengths: Array | None) -> Array:
    """Return a sequence (time, batch, unit) up to the longest of these lengths, zero after each."""
    if lengths is None or sequence.shape[1] != len(lengths):
        return sequence
    steps = np.arange(len(sequence))[: lengths.max()]
    return np.where((steps[:, None] < lengths)[..., None], sequence[: len(steps)], np.zeros((), sequence.dtype))


def _last(tap: Tap, unit: Unit, lengths: Array | None) -> Array | None:
    """Return the last output; that of a backward direction is at the first step."""
    if tap.last is not None or tap.sequence is None:
        return tap.last
    stack = unit.stack
    assert stack is not None
    if stack.num_directions == 1:
        backward = stack.first.reverse and stack.output_order == "time"
        return np.asarray(tap.sequence[0]) if backward else _end(tap.sequence, lengths)
    if stack.layers[-1].merge != "concat":
        return None
    width = stack.layers[-1].directions[0].output_size
    return np.concatenate([_end(tap.sequence, lengths)[:, :width], tap.sequence[0, :, width:]], axis=-1)


def _end(sequence: Array, lengths: Array | None) -> Array:
    """Return the last step of each sequence."""
    if lengths is None or sequence.shape[1] != len(lengths):
        return np.asarray(sequence[-1])
    return np.asarray(sequence[np.maximum(lengths, 1) - 1, np.arange(len(lengths))])
