"""The differences between two files, and their causes, as values that print themselves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Generic, TypeVar

from rnnconvert.comparison.difference import Difference
from rnnconvert.comparison.other_layers import NOT_LOOKED_AT, OtherLayers
from rnnconvert.comparison.pairing import LayerPair
from rnnconvert.core.printable import called, finite
from rnnconvert.core.verdict import LAYERS, NOT_COMPARED, NOT_EQUAL, Limit, Scope, Verdict, not_chosen
from rnnconvert.diagnosis.files import Diagnosed, LayerComparison, cause
from rnnconvert.diagnosis.models import UNEXPLAINED, ModelDiagnosis
from rnnconvert.files.checkpoint import Checkpoint

LayerFindings = TypeVar("LayerFindings", LayerComparison, Diagnosed)


@dataclass(frozen=True, repr=False)
class _TwoFiles(Generic[LayerFindings]):
    """The findings about two files, layer by layer."""

    a: Checkpoint
    b: Checkpoint
    layers: tuple[LayerFindings, ...]
    others: OtherLayers = NOT_LOOKED_AT
    model: ModelDiagnosis | None = None

    @property
    def verdict(self) -> Verdict:
        """The verdict, with all that it does not cover."""
        chosen = {name for layer in self.layers for name in self._pair(layer).own_names}
        left = [name for name in self.a.layers if name not in chosen]
        limits: list[Limit] = [not_chosen(left, self.a.path)] if left else []
        limits += [limit for layer in self.layers for limit in self._limits(layer)]
        limits += self.others.limits
        equal = all(layer.equal for layer in self.layers) and not self.others.refuted
        if self.model is None:
            equal = equal and not self.others.settings
        elif self.model.status == "equal":
            limits = [Limit("others", limit.layer, limit.words) if limit.kind == "rest" else limit for limit in limits]
            limits += [Limit("outputs", "", f"B is called otherwise than A: {self.model.called}")] if self.model.called else []
            return Verdict.of(equal=equal, compared=bool(self.layers), limits=limits, scope="whole")
        elif self.model.status == "not compared":
            limits.append(Limit("rest", "", f"not compared: {self.model.reason}"))
            equal = equal and not self.others.settings
        elif self.model.sentences:  # what explains all of it shows that they could be compared
            equal = False
        elif self.model.masked and any(limit.kind == "mask" for limit in limits):
            limits.append(Limit("outputs", "", f"the whole models give something else: {self.model.reason}"))
        else:
            equal = False
        complete = self.others is not NOT_LOOKED_AT and not any(limit.kind in ("rest", "chosen") for limit in limits)
        scope: Scope = "weights" if complete else "layers"
        return Verdict.of(equal=equal, compared=bool(self.layers), limits=limits, scope=scope)

    @property
    def equal(self) -> bool:
        """Whether all layers are equal, and nothing was left out."""
        return bool(self.verdict)

    def __bool__(self) -> bool:
        return self.equal

    def as_dict(self) -> dict[str, Any]:
        """Return all of it as JSON can hold it."""
        layers = [self._document(layer) for layer in self.layers]
        document = {"a": self.a.path, "b": self.b.path, "equal": self.equal, **self.verdict.as_dict(), "layers": layers}
        if self.model is not None:
            document["model"] = asdict(self.model)
        document["other_layers"] = {"equal": self.others.equal, "different": [*self.others.different, *self.others.settings]}
        return {key: finite(value) for key, value in document.items()}

    def lines(self) -> Iterator[str]:
        """Yield the text line by line: every layer, and last the verdict."""
        for layer in self.layers:
            yield self._headline(layer)
            yield from (f"  {line}" for line in self.lines_of(layer))
        yield from (f"differs, though not recurrent: {words}" for words in (*self.others.different, *self.others.settings))
        if self.model is not None and self.model.status == "not equal":
            yield f"run whole, the models give something else: {self.model.reason}"
            yield from (f"  {line}" for line in self.model.sentences or (UNEXPLAINED,))
        yield self._verdict(f"{self.a.path} and {self.b.path}")

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self._verdict(f'{self.a.path} and {self.b.path}')}>"

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def _repr_html_(self) -> str:
        """Return a table of the layers, for a notebook."""
        from rnnconvert.core.notebook import listing

        rows = [(self._headline(layer), "\n".join(self.lines_of(layer))) for layer in self.layers]
        return listing(self._verdict(f"{self.a.path} and {self.b.path}"), rows)

    def _verdict(self, files: str) -> str:
        """Return the verdict on two files, in a sentence, with its scope."""
        raise NotImplementedError

    def _headline(self, layer: LayerFindings) -> str:
        """Say which layers are compared, and how they were found."""
        pair = self._pair(layer)
        return f"{called(pair.name)} = {' + '.join(map(called, pair.names))} ({pair.evidence})"

    def _pair(self, layer: LayerFindings) -> LayerPair:
        raise NotImplementedError

    def _limits(self, layer: LayerFindings) -> Sequence[Limit]:
        raise NotImplementedError

    def lines_of(self, layer: LayerFindings) -> Iterable[str]:
        """Return the findings about one layer, line by line."""
        raise NotImplementedError

    def _document(self, layer: LayerFindings) -> dict[str, Any]:
        raise NotImplementedError


class Comparison(_TwoFiles[LayerComparison]):
    """The comparison of two files, layer by layer.

    a, b    the files
    layers  each layer of A with its counterpart in B, and the differences of their weights and cells
    others  the comparison of the layers that are not recurrent
    """

    def _verdict(self, files: str) -> str:
        verdict = self.verdict
        if verdict.word in (NOT_EQUAL, NOT_COMPARED):
            return f"{files} are {verdict}"
        if verdict.scope == "weights":
            return f"every weight of {files} is {verdict}"
        if verdict.word == LAYERS:
            return f"the recurrent layers of {files} are equal; {'; '.join(map(str, verdict.limits))}"
        return f"the recurrent layers of {files} are {verdict}"

    def _pair(self, layer: LayerComparison) -> LayerPair:
        return layer.pair

    def _limits(self, layer: LayerComparison) -> Sequence[Limit]:
        return layer.limits

    def lines_of(self, layer: LayerComparison) -> Iterator[str]:
        return _differences(layer)

    def _document(self, layer: LayerComparison) -> dict[str, Any]:
        return {**_document(layer, layer.equal), "cause": cause(layer)}


class Findings(_TwoFiles[Diagnosed]):
    """The reasons why the layers of two files do not compute the same.

    a, b    the files
    layers  each layer of A with its counterpart in B, and the findings
    others  the comparison of the layers that are not recurrent
    model   the comparison of the models, run whole; None if they did not run
    """

    def _verdict(self, files: str) -> str:
        verdict = self.verdict
        if verdict.word == NOT_EQUAL:
            return f"{files} do not compute the same"
        left = "".join(f"; {limit}" for limit in verdict.limits)
        if verdict.scope == "whole":
            return f"{files} compute the same, run whole{left}"
        others = ", and the weights of the others are equal" if verdict.scope == "weights" and self.others.equal else ""
        return f"the recurrent layers of {files} compute the same{others}{left}"

    def _pair(self, layer: Diagnosed) -> LayerPair:
        return layer.compared.pair

    def _limits(self, layer: Diagnosed) -> Sequence[Limit]:
        return [limit for limit in layer.compared.limits if limit.kind != "rounding"]

    def lines_of(self, layer: Diagnosed) -> Sequence[str]:
        return layer.diagnosis.sentences

    def _document(self, layer: Diagnosed) -> dict[str, Any]:
        findings = {"fault": layer.diagnosis.fault, "sentences": list(layer.diagnosis.sentences)}
        return {**_document(layer.compared, layer.equal), **findings}


def _place(difference: Difference) -> str:
    """Return the layer and direction of a difference."""
    words = [] if difference.layer < 0 else [f"layer {difference.layer}"]
    return ", ".join([*words, *([] if difference.direction < 0 else [("forward", "backward")[difference.direction]])])


def _document(compared: LayerComparison, equal: bool) -> dict[str, Any]:
    pair = compared.pair
    return {
        "name": pair.name,
        "counterpart": list(pair.names),
        "evidence": pair.evidence,
        "description": [pair.stack.describe(), pair.counterpart.describe()],
        "equal": equal,
        "differences": [
            {**asdict(difference), "equal": difference.equal}
            for difference in compared.differences
            if difference.error or difference.kind in ("rewrite", "outside")
        ],
    }


def _differences(compared: LayerComparison) -> Iterator[str]:
    differences_ = compared.differences
    if why := cause(compared):
        yield f"cause: {why}"
    yield from (f"compared in one form: {difference.words}" for difference in differences_ if difference.kind == "rewrite")
    yield from (f"not compared: {difference.words}" for difference in differences_ if difference.kind == "outside")
    yield from (limit.words for limit in compared.stated)
    for unequal in differences_:
        if unequal.kind in ("feature", "shape") and not unequal.equal:
            where, part = _place(unequal), f"{unequal.part}{f' of gate {unequal.gate}' if unequal.gate else ''}"
            text = unequal.words if unequal.kind == "feature" else f"{part}: {unequal.words}"
            yield f"differs: {f'{where}: ' if where else ''}{text}"
    weights = [difference for difference in differences_ if difference.kind == "weights"]
    yield from (f"differs: {_line(difference)}" for difference in weights if not difference.equal)
    yield from (f"note: {words}" for words in dict.fromkeys(difference.words for difference in weights if difference.words))
    same, rounded = sum(difference.error == 0 for difference in weights), [difference for difference in weights if difference.rounded]
    if compared.exact:
        yield f"equal: all {same} arrays, to the last bit"
        return
    if same:
        yield f"equal: {same} of {len(weights)} arrays, to the last bit"
    if rounded:
        worst = max(rounded, key=lambda difference: difference.relative)
        yield f"equal but for rounding: {len(rounded)} of {len(weights)} arrays, at most {worst.error:.2g}"


def _line(difference: Difference) -> str:
    gate = f" of gate {difference.gate}" if difference.gate else ""
    at = f" at {difference.where}: {difference.expected:.6g} in A, {difference.found:.6g} in B" if difference.expected is not None else ""
    where = _place(difference)
    size = f"{difference.error:.3g}" + (f" ({100 * difference.relative:.3g} % of the largest)" if difference.relative < 1e6 else "")
    return f"{f'{where}: ' if where else ''}{difference.part}{gate} by {size}{at}"
