"""rnnconvert diff: what differs between the weights of two files, gate by gate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from rnnconvert.cli.terminal import emit, put
from rnnconvert.cli.two_files import document, headline, load_both, place, two_files

if TYPE_CHECKING:
    from rnnconvert.comparison.difference import Difference

_EPILOG = """\b
Examples:
  rnnconvert diff model.h5 model.onnx
  rnnconvert diff before.pt after.pt --layer encoder.lstm
  rnnconvert diff model.pt model.keras --pair encoder=lstm+lstm_1

\b
Exit codes: 0 equal (or off by rounding only), 1 not equal, 2 to 5 as elsewhere.
"""


@click.command(epilog=_EPILOG)
@two_files
def diff(
    a: str,
    b: str,
    from_a: str | None,
    from_b: str | None,
    layers: tuple[str, ...],
    pairs: tuple[str, ...],
    settings: tuple[str, ...],
    settings_a: tuple[str, ...],
    settings_b: tuple[str, ...],
    as_json: bool,
) -> None:
    """Compare the weights and the cells of A and B, whatever their formats.

    Both are brought into one form first: each gate by itself, with exact rewrites applied, so that equal functions compare
    as equal. Where they differ, the wrong convention that turns A's arrays into B's is named. For what a difference does to
    the outputs, see rnnconvert diagnose.
    """
    from rnnconvert.diagnosis.files import cause, compare_files
    from rnnconvert.verification.report import finite

    found = compare_files(*load_both(a, b, from_a, from_b, settings, settings_a, settings_b), layers, pairs)
    equal = all(one.equal for one in found)
    if as_json:
        emit(finite({"a": a, "b": b, "equal": equal,
                    "layers": [{**document(one.pair, one.differences, one.equal), "cause": cause(one)} for one in found]
                    }))  # fmt: skip
    else:
        for one in found:
            _show(headline(one.pair), cause(one), one.differences, one.exact)
        put(f"{a} and {b} are {'' if equal else 'not '}equal")
    click.get_current_context().exit(0 if equal else 1)


def _show(head: str, cause: str, found: Sequence[Difference], exact: bool) -> None:
    put(head)
    if cause:
        put(f"  cause: {cause}")
    for one in found:
        if one.kind == "rewrite":
            put(f"  compared in one form: {one.words}")
    for one in found:
        if one.kind in ("feature", "shape") and not one.equal:
            where, part = place(one), f"{one.part}{f' of gate {one.gate}' if one.gate else ''}"
            text = one.words if one.kind == "feature" else f"{part}: {one.words}"
            put(f"  differs: {f'{where}: ' if where else ''}{text}")
    numbers = [one for one in found if one.kind == "weights"]
    for one in numbers:
        if not one.equal:
            put(f"  differs: {_line(one)}")
    for words in dict.fromkeys(one.words for one in numbers if one.words):
        put(f"  note: {words}")
    same, rounded = sum(one.error == 0 for one in numbers), [one for one in numbers if one.rounded]
    if exact:
        put(f"  equal: all {same} arrays, to the last bit")
        return
    if same:
        put(f"  equal: {same} of {len(numbers)} arrays, to the last bit")
    if rounded:
        worst = max(rounded, key=lambda one: one.relative)
        put(f"  equal but for rounding: {len(rounded)} of {len(numbers)} arrays, at most {worst.error:.2g}")


def _line(one: Difference) -> str:
    gate: Any = f" of gate {one.gate}" if one.gate else ""
    at = f" at {one.where}: {one.expected:.6g} in A, {one.found:.6g} in B" if one.expected is not None else ""
    where = place(one)
    size = f"{one.error:.3g}" + (f" ({100 * one.relative:.3g} % of the largest)" if one.relative < 1e6 else "")
    return f"{f'{where}: ' if where else ''}{one.part}{gate} by {size}{at}"
