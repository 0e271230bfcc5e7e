"""Chainer's files: chainer.serializers.save_npz and save_hdf5, arrays by their paths in a link.

Source: chainer/serializers/{npz,hdf5}.py (7.8.1). Its peepholes are links of whole matrices, `peep_i`, `peep_f`, `peep_o`
(links/rnn/peephole.py): where nothing stands beside the diagonals, these are what every other framework calls peepholes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from rnnconvert.adapters.array_files import ArrayFiles, Doubt, Group
from rnnconvert.arrays import Array
from rnnconvert.checkpoint import Checkpoint, Undecided
from rnnconvert.containers import archives
from rnnconvert.containers.stored import Stored
from rnnconvert.errors import RefusedError
from rnnconvert.options import Options
from rnnconvert.weights import Recurrent

_PEEPHOLE = re.compile(r"(?:(?P<above>.*)/)?peep_[ifo]/W", re.S)


class ChainerFiles(ArrayFiles):
    """The adapter of Chainer's files: see rnnconvert.adapters."""

    def kind(self, path: Path, head: bytes) -> str:
        """An .npz archive or an HDF5 file."""
        found = archives.kind(path, head)
        return found if head[:2] == b"PK" or head[:4] == b"\x89HDF" else ""

    def read(self, path: Path, options: Options) -> Checkpoint:
        """Every link. Raises RefusedError for peepholes that are whole matrices, besides what others raise."""
        found = super().read(path, options)
        doubts = [
            f"{name or 'the file itself'}: a StatefulGRU (L.GRU) that is called without a state leaves the biases of its U links "
            "out at the first step; this is what it computes from a state of zeros, as StatelessGRU does"
            for name, layer in found.layers.items()
            if layer.cell.reset_after is False
            and any(np.any(layer.first.get("recurrent_bias", gate)) for gate in "rzn")
        ]
        return found.but(arrays=self.archive(path).arrays, warnings=(*found.warnings, *doubts))

    def archive(self, path: Path) -> Stored:
        """Everything in a file, as it is there. Raises UnreadableError."""
        return super().stored(path)

    def stored(self, path: Path) -> Stored:
        """Everything in a file, of peepholes' matrices the diagonals. Raises UnreadableError."""
        stored = self.archive(path)
        square = {name for name, array in stored.arrays.items() if _PEEPHOLE.fullmatch(name) and array.ndim == 2}
        diagonal = {name: np.diagonal(array) if name in square else array for name, array in stored.arrays.items()}
        whole = {name for name in square if _beside(stored.arrays[name])}
        return replace(stored, arrays=diagonal, metadata={**stored.metadata, "whole": whole})

    def _settled(
        self, name: str, candidates: Mapping[str, dict[str, str]], arrays: Mapping[str, Array], options: Options
    ) -> Group | Doubt | None:
        """The link under a name: an LSTM without peepholes is no StatefulPeepholeLSTM, which always has them."""
        known = {
            layout: names
            for layout, names in candidates.items()
            if layout != "chainer.peephole_lstm" or any(local.startswith("peep_") for local in names)
        }
        return super()._settled(name, known, arrays, options)

    def layer(self, group: Group, stored: Stored, options: Options) -> tuple[Recurrent, list[Undecided]]:
        """The canonical form of a link. Raises RefusedError for peepholes that are whole matrices."""
        whole = sorted(stored.metadata["whole"] & set(group.names.values()))
        if whole:
            raise RefusedError(
                "a peephole that is a whole matrix", "the canonical form",
                f"{whole[0]!r} makes a gate of one unit depend on the cell states of others, and peepholes of every other "
                "framework are diagonal", "Train the link with diagonal matrices, or without peepholes (L.LSTM).", group.name,
            )  # fmt: skip
        return super().layer(group, stored, options)


def _beside(matrix: Array) -> bool:
    """Whether anything stands beside the diagonal."""
    return matrix.shape[0] != matrix.shape[1] or bool((matrix - np.diag(np.diagonal(matrix))).any())


ADAPTERS = (ChainerFiles("chainer", (".npz", ".h5", ".hdf5"), "/"),)
