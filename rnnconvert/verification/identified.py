"""Write weights of unknown origin once they are identified, and prove what is written on the sample that identified them."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np

from rnnconvert.containers.temporary import new_folder
from rnnconvert.core.errors import UsageError
from rnnconvert.core.remedies import Flag
from rnnconvert.files.convert import SaveTarget
from rnnconvert.files.in_memory import Source
from rnnconvert.files.summary import Summary
from rnnconvert.identification import sample
from rnnconvert.identification.identify import Identification, read_arrays
from rnnconvert.language import layout_file, registry
from rnnconvert.verification.plan import Plan, Watch
from rnnconvert.verification.proved import convert_verified
from rnnconvert.verification.report import Report


def convert_identified(
    weights: str | os.PathLike[str],
    identification: Identification,
    io: str | os.PathLike[str],
    target: SaveTarget,
    watch: Watch = lambda text, done=0, total=0: None,
) -> tuple[Summary, Report]:
    """Write the layer that was identified, and keep the file only if its own framework gives for the sample's input what the
    layer gives: the sample's outputs, to rounding.

    identification  what `identify` says of the weights with this sample

    Raises UsageError for weights that were not identified, and what `rnnconvert.convert` raises.
    """
    if identification.verdict != "identified":
        raise UsageError(f"the weights are not identified ({identification.verdict}), so that nothing is written")
    function = identification.functions[0]
    if not function.layout:
        raise UsageError(
            f"no layout describes these arrays, whose layer reads its input unweighted. Read them with {Flag('from')}; "
            "they have the layout "
            f"{' or '.join(function.names[:3]) or 'of no known format'}"
        )
    described = layout_file.parsed(function.layout, Path("found.toml"))
    settings = ["go_backwards=true"] if all(direction.reverse for *_, direction in function.stack.directions()) else []
    arrays, are_bare = read_arrays(Path(weights))
    source: Source = arrays if are_bare else weights
    with registry.added_for_now(described), new_folder() as folder:
        inputs = Path(folder) / "sample.npz"
        np.savez(inputs, **_inputs(sample.read(Path(io)), function.axes))  # type: ignore[arg-type]
        summary, report = convert_verified(source, described[0].name.partition(".")[0], target, settings, Plan(inputs=str(inputs)), watch)
    document = report.document
    document["settings"]["inputs"] = os.fspath(io)
    # No framework has these weights: the truth is the function that was found, which gives the sample's outputs.
    document["warnings"] = [
        warning for warning in document["warnings"] if not re.search(r"no executor here runs found|ran A's own file", warning)
    ]
    return summary, report


def _inputs(samples: list[sample.Sample], axes: str) -> dict[str, object]:
    """Return the arrays that a verification runs on, of the sample whose axes were found to be right."""
    chosen_sample = next((each for each in samples if each.axes == axes), samples[0])
    arrays: dict[str, object] = {"x": chosen_sample.x}
    for name, states in (("h_0", chosen_sample.h0), ("c_0", chosen_sample.c0)):
        if states is not None:
            arrays[name] = np.stack(states)
    return {**arrays, **({} if chosen_sample.lengths is None else {"lengths": chosen_sample.lengths})}
