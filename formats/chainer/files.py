"""Chainer's files: chainer.serializers.save_npz and save_hdf5, arrays by their paths in a link.

Source: chainer/serializers/{npz,hdf5}.py (7.8.1). Its peepholes are links of whole matrices, `peep_i`, `peep_f`, `peep_o`
(links/rnn/peephole.py): where everything off the diagonals is zero, these are what every other framework calls peepholes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from rnnconvert.containers.files import lowered
from rnnconvert.containers.stored import FileMetadata, Stored
from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import RefusedError, UnreadableError
from rnnconvert.core.notes import UNREAD, LayerNote
from rnnconvert.core.remedies import Setting
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.files.finder import ArrayFiles
from rnnconvert.files.finder_words import Doubt
from rnnconvert.files.found_layer import FoundLayer
from rnnconvert.files.opened import STATED, FormatClaim, Opened
from rnnconvert.files.options import Options
from rnnconvert.language import registry
from rnnconvert.language.fitting import fit
from rnnconvert.language.layout import Layout

_PAIR = re.compile(r"(?P<above>.+)_x/W", re.S)
_PEEPHOLE = re.compile(r"(?:(?P<above>.*)/)?peep_[ifo]/W", re.S)


class ChainerMetadata(FileMetadata, total=False):
    """The metadata of a file: the matrices that hold all gates' in full."""

    full_matrices: set[str]


class ChainerFiles(ArrayFiles):
    """The adapter of Chainer's files: see rnnconvert.files.adapter."""

    def recognise(self, file: Opened) -> FormatClaim | None:
        """Recognize arrays with the names and shapes of a link, or a pickle that names Chainer."""
        if _is_pickle(file.path, file.head):
            return FormatClaim(STATED, "a pickle of a link of Chainer")
        return super().recognise(file)

    def kind(self, file: Opened) -> str:
        """Return the words for an .npz archive or an HDF5 file."""
        return file.archive if file.kinds & {"npz", "hdf5"} else ""

    def read(self, path: Path, options: Options) -> Checkpoint:
        """Return every link. Raises RefusedError for peepholes that are whole matrices, and what the others raise."""
        file = Opened(path)
        if _is_pickle(path, file.head):
            raise UnreadableError(
                path,
                "it is a pickle of a link of Chainer, which can only be opened by running it",
                "If you trust it, load it in Chainer and save it with chainer.serializers.save_npz(path, link).",
            )
        checkpoint = super().read(path, options)
        doubts = [
            LayerNote(
                name,
                "a StatefulGRU (L.GRU) that is called without a state leaves the biases of its U links "
                "out at the first step; this is what it computes from a state of zeros, as StatelessGRU does",
                UNREAD,
                unnamed="the file itself",
            )
            for name, layer in checkpoint.layers.items()
            if layer.cell.reset_after is False and any(np.any(layer.first.get("recurrent_bias", gate)) for gate in "rzn")
        ]
        return checkpoint.replace(arrays=self.archive(file).arrays, warnings=(*checkpoint.warnings, *doubts))

    def constructor(self, layout: Layout, stack: Recurrent) -> str:
        """Return the call that makes a link for these arrays."""
        name = layout.class_name
        if layout.kind == "rnn":
            name = name.replace("Tanh", {"tanh": "Tanh", "relu": "ReLU"}[stack.cell.activation.name])
        if not layout.holds.layers:
            return f"{name}({stack.input_size}, {stack.hidden_size})"
        name = name.replace("NStep", "NStepBi") if stack.num_directions == 2 else name
        return f"{name}({stack.num_layers}, {stack.input_size}, {stack.hidden_size}, 0.0)"

    def archive(self, file: Opened) -> Stored:
        """Return everything in a file, unchanged. Raises UnreadableError."""
        return super().stored(file)

    def stored(self, file: Opened) -> Stored:
        """Return everything in a file; for peepholes' matrices the diagonals. Raises UnreadableError."""
        stored = self.archive(file)
        square = {name for name, array in stored.arrays.items() if _PEEPHOLE.fullmatch(name) and array.ndim == 2}
        diagonal = {name: np.diagonal(array) if name in square else array for name, array in stored.arrays.items()}
        full_matrices = {name for name in square if _has_off_diagonals(stored.arrays[name])}
        return replace(stored, arrays=diagonal, metadata={**stored.metadata, "full_matrices": full_matrices})

    def groups(self, arrays: Mapping[str, Array], options: Options) -> tuple[list[FoundLayer], list[LayerNote]]:
        """Return the links; two Linear ones, NAME_x and NAME_h, are an LSTM where the caller states that F.lstm reads their sum."""
        all_groups, doubts = super().groups(arrays, options)
        layout = registry.layout_named(f"{self.NAME}.function_lstm")
        for above in [match["above"] for match in map(_PAIR.fullmatch, arrays) if match]:
            names = {tensor.name: f"{above}_{tensor.name}" for tensor in layout.tensors if f"{above}_{tensor.name}" in arrays}
            sizes = fit(layout, {local: tuple(arrays[full].shape) for local, full in names.items()})
            if sizes is not None and self._asked(options, above) == layout.name:
                options.get("layout", above)
                all_groups.append(FoundLayer(above, layout, sizes, names))
            elif sizes is not None:
                doubts.append(
                    LayerNote(
                        above,
                        f"{above}_x and {above}_h are as wide as the links that F.lstm reads, with {sizes.hidden_size} units; if "
                        f"it does, confirm with {Setting('layout', layout.name, layer=above)}",
                        UNREAD,
                    )
                )
        return all_groups, doubts

    def _settled(
        self, name: str, candidates: Mapping[str, dict[str, str]], arrays: Mapping[str, Array], options: Options
    ) -> FoundLayer | Doubt | None:
        """Return the link under a name. An LSTM without peepholes is not a StatefulPeepholeLSTM, which always has them."""
        distinct = {
            layout: names
            for layout, names in candidates.items()
            if layout != "chainer.peephole_lstm" or any(local.startswith("peep_") for local in names)
        }
        return super()._settled(name, distinct, arrays, options)

    def layer(self, group: FoundLayer, stored: Stored, options: Options) -> Recurrent:
        """Return the canonical form of a link. Raises RefusedError for peepholes that are whole matrices."""
        full_matrices = sorted(stored.metadata_as(ChainerMetadata).get("full_matrices", set()) & set(group.names.values()))
        if full_matrices:
            raise RefusedError(
                "a peephole that is a whole matrix",
                "the canonical form",
                f"{full_matrices[0]!r} makes a gate of one unit depend on the cell states of others, but peepholes of every other "
                "framework are diagonal",
                "Train the link with diagonal matrices, or without peepholes (L.LSTM).",
                group.name,
            )
        return super().layer(group, stored, options)


def _is_pickle(path: Path, head: bytes) -> bool:
    """Return whether a file is a pickle, binary or of text, that names a module of Chainer early."""
    binary = head[:1] == b"\x80" and head[1:2] <= b"\x05"
    text = head[:1] in (b"c", b"(") and b"\n" in head[:300]
    return (binary or text) and (b"chainer." in head or lowered(path).suffix == ".chainermodel")


def _has_off_diagonals(matrix: Array) -> bool:
    """Return whether anything is next to the diagonal."""
    return matrix.shape[0] != matrix.shape[1] or bool((matrix - np.diag(np.diagonal(matrix))).any())


ADAPTERS = (ChainerFiles("chainer", registry.endings("chainer"), "/"),)
