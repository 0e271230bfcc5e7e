"""Proofs that are kept: what was compared and proved equal is not run again until something of it changes.

A proof is the report, under a hash of all that decides it: both files, their weights as they were read, the plan, the tolerances,
every executor with its versions, and the code of rnnconvert itself. Only what does not differ is kept, with all that was left
out: a failure is shown again. An entry states its hash, too, so that one of another name is that of another proof; but nothing tells an
entry that somebody else wrote: the folder is as trusted as the code.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np

from rnnconvert import reports
from rnnconvert.containers.files import replacing
from rnnconvert.core import version
from rnnconvert.core.errors import UnreadableError, unwritable
from rnnconvert.core.verdict import NOT_COMPARED, NOT_EQUAL
from rnnconvert.judging.judging import Tolerance
from rnnconvert.running import registry
from rnnconvert.verification.lanes import PreparedModels
from rnnconvert.verification.plan import Plan
from rnnconvert.verification.results import hash_file
from rnnconvert.verification.stated import outlined

Document = dict[str, Any]


class Cache:
    """A folder of proofs."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Raise OutputError if the folder cannot be made, UsageError for the path of a file."""
        self.folder = Path(folder)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise unwritable(folder, error) from None

    def find(self, key: str) -> Document | None:
        """Return the report kept under a key; None if none is kept, or it is damaged, or of another proof."""
        path = self.folder / f"{key}.json"
        if not path.is_file():
            return None
        try:
            entry = reports.values(path)
            if not isinstance(entry, dict) or entry.get("proof") != key:
                return None
            document = reports.checked(entry.get("report"), path)
        except UnreadableError:
            return None
        if document["verdict"] in (NOT_EQUAL, NOT_COMPARED):
            return None
        document["summary"] += f"; run on {document['created'][:10]}, and nothing has changed since"
        return document

    def keep(self, key: str, document: Document) -> None:
        """Keep a report in which nothing differs. Raises UsageError if it cannot be written."""
        if document["verdict"] in (NOT_EQUAL, NOT_COMPARED):
            return
        with replacing(self.folder / f"{key}.json") as file:
            file.write(reports.encoded(f'{{"proof": "{key}", "report": {reports.render(document, ".json").strip()}}}\n'))


def key_of(prepared: PreparedModels, tolerances: Mapping[str, Tolerance], explain: bool) -> str:
    """Return the hash of all that decides a report."""
    plan = prepared.plan
    executors = registry.executors().values() if prepared.chosen is None else prepared.chosen
    decides = {
        "code": _code(),
        "machine": [platform.machine(), platform.python_version(), np.__version__],
        "models": [{**asdict(model), "label": ""} for model in prepared.results.models],
        "layers": [[executor.model, executor.stack.name, executor.pieces, outlined(executor.stack)] for executor in prepared.subjects],
        "plan": {field_.name: getattr(plan, field_.name) for field_ in fields(Plan) if field_.name != "given"},
        "inputs": hash_file(plan.inputs) if plan.inputs else None,
        "executors": [[field_.name, field_.variant, field_.python, hash_file(field_.module), field_.about] for field_ in executors],
        "tolerances": {name: asdict(tolerance) for name, tolerance in tolerances.items()},
        "explain": explain,
        "warnings": prepared.results.warnings,
    }
    return hashlib.sha256(json.dumps(decides, sort_keys=True, default=str).encode()).hexdigest()


@functools.cache
def _code() -> str:
    """Return a hash of rnnconvert's own code."""
    digest = hashlib.sha256(version.__version__.encode())
    root = Path(str(version.__file__)).parents[1]
    for folder in (root, root / "formats", root / "cli"):  # the two are links in a clone, which a search does not follow
        for file in sorted(folder.rglob("*.py")):
            digest.update(f"{file.relative_to(root)} {hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()
