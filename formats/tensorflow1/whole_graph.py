"""A frozen graph as a whole model: which of its values are the model's inputs and outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from rnnconvert.containers.graph_def import WHILES
from rnnconvert.core.cached import cached_property
from rnnconvert.graphs.program.lowering import needed
from rnnconvert.graphs.program.operations import Declared
from rnnconvert.graphs.program.scopes import Scope
from rnnconvert.graphs.program.shapes import Shapes
from rnnconvert.scaffolding.programs.units import ProgramModel

_FRONT = ("DecodeWav", "AudioSpectrogram", "Mfcc")
"""Operations that make features of a sound, which speech models have in front of their layers. Source: tensorflow/core/ops/audio_ops.cc."""

_LISTS = ("TensorListReserve", "TensorArrayV3")
"""Operations that make room for what a loop gives: once the loop is read, nothing reads them."""


class GraphModel(ProgramModel):
    """A graph, in which every value that nothing reads is an output, and which begins behind what makes features of a sound.

    stated  the values that the file states as its "inputs" and "outputs"
    """

    stated: Mapping[str, Sequence[str]] = MappingProxyType({})

    @property
    def _main(self) -> Scope:
        return self.read.scopes[0]

    @cached_property
    def _shapes(self) -> Shapes:
        return Shapes(self._main.program)

    def input_name(self, value: str) -> str:
        """Return the name of the operation that gives it."""
        return value.partition(":")[0]

    @cached_property
    def gives(self) -> Sequence[str]:
        """Those that the file states; or else the numbers of operations of which nothing is read and in which an input has a part."""
        main, reached, ends = self._main, {*self._main.body.inputs}, list[str]()
        outputs = self.stated.get("outputs", ())
        if outputs and {*outputs} <= {name for node in main.nodes for name in node.outputs}:
            return outputs
        name_of = self.input_name  # an operation of the graph may be several here, such as one for each part of what it takes apart
        read = {name_of(name) for node in main.nodes for name in node.reads if name_of(name) not in map(name_of, node.outputs)}
        for node in main.nodes:
            if node.reads & reached:
                reached.update(node.outputs)
                # A loop gives every variable, whether it is read or not: one that it only passes through is not an output.
                inner = node.kind in _LISTS or (node.kind == "Identity" and node.operator in WHILES)
                ends += (
                    []
                    if inner or read & {*map(name_of, node.outputs)}
                    else [name for name in node.outputs if name not in self._features and main.constant(name) is None]
                )
        # Counts and places that a list was read by are whole numbers, and nothing reads them any more.
        counts = [name for name in ends if (kind := self._shapes.kind(main, name)) is not None and kind.kind != "f"]
        return [name for name in ends if name not in counts] or ends

    @cached_property
    def reads(self) -> Sequence[str]:
        """The features of a sound and the inputs that outputs depend on, in the order that the file states."""
        behind = [node for node in self._main.nodes if not self._features.keys() & {*node.outputs}]
        read = {name for node in needed(behind, self.gives) for name in node.reads}
        inputs = [name for name in (*self._features, *self._main.body.inputs) if name in read]
        places = {name: place for place, name in enumerate(self.stated.get("inputs", ()))}
        return sorted(inputs, key=lambda name: places.get(name, len(places)))

    @cached_property
    def declared(self) -> dict[str, Declared]:
        """The known facts about the model's inputs, by name."""
        return {**super().declared, **self._features}

    @property
    def notes(self) -> Sequence[str]:
        """Where the model begins, if that is not where the graph does."""
        operators = [node.kind for node in self._main.nodes if node.kind in _FRONT]
        names = ", ".join(self.input_name(name) for name in self.reads if name in self._features)
        return [f"its input is {names!r}: what makes that of a sound ({', '.join(operators)}) is not written"] if names else []

    @cached_property
    def _features(self) -> dict[str, Declared]:
        """The first values behind the features of a sound whose axes are known, but for that of the batch."""
        main, front, features = self._main, set[str](), dict[str, Declared]()
        for node in main.nodes:
            if node.kind in _FRONT:
                front.update(node.outputs)
            elif node.reads & front:
                for name in node.outputs:
                    dims = self._shapes.dims(main, name)
                    if dims is None or None in [*dims[1:]]:
                        front.add(name)
                    else:
                        features[name] = Declared(name, self._shapes.kind(main, name), [None, *dims[1:]])
        return features
