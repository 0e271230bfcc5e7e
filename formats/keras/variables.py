"""Weights of Keras under the names of their variables, in an archive of arrays that a person has saved."""

from __future__ import annotations

import re

from rnnconvert.containers import archives
from rnnconvert.containers.stored import Stored
from rnnconvert.core.errors import UnreadableError
from rnnconvert.core.names import renamed
from rnnconvert.files.opened import Opened
from rnnconvert.formats.keras.metadata import KerasMetadata

KINDS = frozenset({"npz", "safetensors", "pickle", "msgpack", "json"})
"""The kinds of archives of arrays that Keras itself does not write."""
_LOCALS = ("kernel", "recurrent_kernel", "bias")
_RECURRENT = re.compile(r"(?P<scope>(?:.*[/._])?)recurrent_kernel(?P<number>:0)?", re.S)
_ALONE = "recurrent"
"""The name of a layer whose variables have no scope."""


def scopes(names: frozenset[str]) -> dict[str, str]:
    """Return the prefix and the suffix of the names of each recurrent layer's variables: `lstm/lstm_cell/` and `:0`.

    No other framework calls a matrix for the state `recurrent_kernel`. Source: keras/src/layers/rnn, build of each cell.
    """
    matches = filter(None, map(_RECURRENT.fullmatch, sorted(names)))
    ends = {match["scope"]: match["number"] or "" for match in matches}
    return {scope: end for scope, end in ends.items() if f"{scope}kernel{end}" in names}


def recognise(file: Opened) -> str:
    """Return the evidence that a file is such an archive; "" for any other, and for a damaged one."""
    if not file.kinds & KINDS or not file.archive:
        return ""
    try:
        stored = file.cached(archives.reader(file.path, file.head))
    except UnreadableError:
        return ""
    return f"{file.archive} with variables named as Keras names a recurrent layer's" if scopes(frozenset(stored.arrays)) else ""


def grouped(path: object, stored: Stored) -> Stored:
    """Return the arrays in groups as a weights file of Keras has them: each layer's under its scope.

    Raises UnreadableError if two would have one name: arrays of `lstm/` and `lstm.` belong to one layer, and so do `bias` and `bias:0`.
    """
    new_names: dict[str, str] = {}
    for scope, end in scopes(frozenset(stored.arrays)).items():
        layer = scope.strip("/._") or _ALONE
        new_names |= {f"{scope}{local}{end}": f"{layer}/{local}" for local in _LOCALS}
    metadata: KerasMetadata = {**stored.metadata_as(KerasMetadata), "names_alone": True}
    return Stored(renamed(stored.arrays, lambda name: new_names.get(name, name), path), metadata)
