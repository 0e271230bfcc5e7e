"""The report of a transplant, layer by layer."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from rnnconvert.core.claims import filled
from rnnconvert.core.errors import UsageError
from rnnconvert.core.printable import called
from rnnconvert.files.questions import Question
from rnnconvert.models.differences import SettingDifference
from rnnconvert.rewrites import Step

if TYPE_CHECKING:
    from rnnconvert.models.plan import TransplantPlan
    from rnnconvert.models.verify import WholeModels


@dataclass(frozen=True)
class FilledLayer:
    """A layer of the target that was filled.

    target, source  the layers' names
    kind            what both are: recurrent, dense, conv ...
    evidence        why they belong together
    confidence      "told", "sizes", "names", "numbers" or "order"
    arrays          the target's arrays that were filled
    """

    target: str
    source: str
    kind: str
    evidence: str
    confidence: str
    arrays: tuple[str, ...]


@dataclass(frozen=True, repr=False)
class Transplant:
    """The report of a transplant: what was filled, what stayed unchanged, what was left over.

    target, source  their names: paths, or classes of live objects
    filled          the layers that were filled
    kept            arrays of the target that stayed unchanged
    left            arrays of the source that went nowhere
    aside           arrays that are not weights, on either side, and what they are
    steps           what was done to bring layers into the target's form
    differences     what is set differently next to the weights
    notes           notes for the user
    questions       what the source does not state, and what was assumed
    made_of         the source's arrays behind every array that was filled
    model           the filled object: the one that was handed in, or a new one if that cannot be changed (JAX); of
                    a file, its path
    is_new          whether `model` is a new object, and the one that was handed in is unchanged
    giver           the source as it was handed in
    plan            how the weights moved, for what belongs to them
    proof           the outputs of both whole models, if they were run before the file was kept
    """

    target: str
    source: str
    filled: tuple[FilledLayer, ...]
    kept: tuple[str, ...]
    left: tuple[str, ...]
    aside: dict[str, str]
    steps: tuple[Step, ...]
    differences: tuple[SettingDifference, ...]
    notes: tuple[str, ...]
    questions: tuple[Question, ...] = ()
    made_of: dict[str, tuple[str, ...]] = field(default_factory=dict)
    model: Any = None
    is_new: bool = False
    giver: Any = None
    plan: TransplantPlan | None = None
    proof: WholeModels | None = None

    @property
    def exact(self) -> bool:
        """Whether nothing was rounded."""
        return all(step.exact for step in self.steps)

    def as_dict(self) -> dict[str, Any]:
        """Return the report as JSON can hold it."""
        live = ("model", "giver", "plan")
        plain = replace(self, model=None, giver=None, plan=None, proof=None)
        document = {key: value for key, value in asdict(plain).items() if key not in live}
        proof = None if self.proof is None else {**self.proof.conclusion.as_dict(), "text": str(self.proof)}
        return {**document, "proof": proof, "exact": self.exact}

    def verify(
        self, inputs: Any, *, source: Any = None, source_inputs: Any = None, apply: Any = None, expected: Any = None, before: Any = ()
    ) -> WholeModels:
        """Run both whole models and compare them at every recurrent layer's output, then at the end.

        inputs         what the target is called with: an array, several, several by name, or the .npy or .npz file that holds them
        source         the source as a live model, where its file holds no code (a state dictionary, bare weights)
        source_inputs  what the source is called with, if that is not the same
        apply          calls a tree of JAX's on inputs, as in `lambda tree, x: model.apply(tree, x)`
        expected       what the source gave for these inputs, kept from where it can run: an array, several, or the .npy or
                       .npz file that holds them; the source is not run then
        before         inputs of calls before, one after the other, each an array or several: both models begin without states, and
                       stateful layers go on from call to call

        Raises UsageError for a model that cannot be run, and what its framework lacks.
        """
        from rnnconvert.models.verify import ModelCalls, compared, compared_with_kept

        if expected is not None and before:
            raise UsageError("before= is for two models that are run, and expected= replaces the run of one. Leave one of them out")
        if expected is not None:
            names = [entry.target for entry in self.filled if entry.kind == "recurrent"]
            return compared_with_kept(self.model, names, ModelCalls(inputs, apply), expected)
        pairs = [(entry.target, entry.source) for entry in self.filled if entry.kind == "recurrent"]
        giver = self.giver if source is None else source
        calls = ModelCalls(inputs, apply, before)
        return compared(self.model, giver, pairs, calls, calls if source_inputs is None else replace(calls, inputs=source_inputs))

    def __repr__(self) -> str:
        counts = (("layer", "filled", self.filled), ("array", "unchanged", self.kept), ("array", "unused in the source", self.left))
        counted = [f"{len(what)} {word}{'s' if len(what) != 1 else ''} {done}" for word, done, what in counts if what]
        return f"<Transplant of {self.source} into {self.target}: {', '.join(counted) or 'nothing filled'}>"

    def _repr_html_(self) -> str:
        """Return a table of what was filled, for a notebook."""
        from rnnconvert.core.notebook import listing

        rows = [(called(entry.target), f"from {called(entry.source)}: {entry.kind}, {entry.evidence}") for entry in self.filled]
        rows += [("difference", str(difference)) for difference in self.differences]
        rows += [("note", note) for note in self.notes]
        return listing(self._title(), rows)

    def _title(self) -> str:
        """Return the statement of what was filled, which says first if it is a new object."""
        where = " (a new tree, in report.model; yours is unchanged)" if self.is_new else ""
        return filled(self.target, self.source, self.filled) + where

    def lines(self) -> list[str]:
        """Return the report line by line."""
        lines = [self._title()]
        lines += [f"  {called(entry.target)} from {called(entry.source)}: {entry.kind}, {entry.evidence}" for entry in self.filled]
        lines += [f"rewrite: {called(step.layer)}: {step.detail}" for step in self.steps]
        lines += [f"difference: {difference}" for difference in self.differences]
        lines += [f"note: {note}" for note in self.notes]
        lines += [f"assumed: {called(question.layer)}: {question.option}={question.assumed}; {question.why}" for question in self.questions]
        lines += [f"unchanged: {name}" for name in self.kept]
        lines += [f"unused in the source: {name}" for name in self.left]
        lines += str(self.proof).splitlines() if self.proof is not None else []
        return lines

    def __str__(self) -> str:
        return "\n".join(self.lines())
