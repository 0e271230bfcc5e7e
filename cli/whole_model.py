"""Offers of `scaffold` and `export` for a layer that `convert` refuses or leaves out: the whole model, as code or as one file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rnnconvert.core.errors import RefusedError, RnnConvertError, UndecidedError, UnreadLayersError, UsageError
from rnnconvert.core.remedies import Command

if TYPE_CHECKING:
    from rnnconvert.scaffolding.ordered import UnstatedOrderError

_AS_CODE = {"pytorch": "pytorch", "keras": "keras", "jax": "flax"}
"""The framework that code is written for, by the format of the weights that were wanted."""


def offers(error: RefusedError, source: str, target_format: str) -> tuple[str, ...]:
    """Return the offer of `scaffold` for a file of which `convert` refused a layer; nothing if it refuses it, too.

    target_format  the format wanted for the layers: code for another framework helps only if no format holds a layer
    """
    framework = _AS_CODE.get(target_format, "pytorch" if isinstance(error, UnreadLayersError) else "")
    if not framework or isinstance(error, UndecidedError) or not Path(source).exists():
        return ()
    from rnnconvert.scaffolding.ordered import UnstatedOrderError
    from rnnconvert.scaffolding.scaffold import targets
    from rnnconvert.scaffolding.sources import described_source

    target, what, chain = targets()[framework], "the whole model", {}
    try:
        try:
            description = described_source(source).description
        except UnstatedOrderError as unstated:
            if (ordered := _ordered(unstated)) is None:
                return ()
            what, chain = f"{ordered[0]},", {"chain": ordered[1]}
            description = described_source(source, chain=ordered[1]).description
        target.write(description, source)
    except RnnConvertError:
        return ()
    command = Command("scaffold", source, to=framework, output="model.py", **chain)
    return (f"To write {what} as {target.TITLE} code, which computes this layer, too: {command}",)


def _ordered(error: UnstatedOrderError) -> tuple[str, str] | None:
    """Return what stands in the place of a whole model where the order of its layers is not stated, and the order; None without one."""
    if error.doubt or not error.orders:
        return None
    stands = "its layers have this order and nothing" if len(error.orders) > 1 else "nothing"
    return f"the whole model, if {stands} stands between them (else add it to --chain: relu, last for the last step ...)", error.orders[0]


def exported(source: str, target: str, target_format: str, force: bool = True) -> tuple[str, Command] | None:
    """Return the command that writes the whole model of a file, not its recurrent layers alone, and what it does.

    force  whether a file of the name is there by then

    Of weights alone it states the order of the layers that fits, of two that of the file. None where the command would refuse.
    """
    from rnnconvert.files import detect
    from rnnconvert.language import registry
    from rnnconvert.scaffolding.ordered import UnstatedOrderError

    room = registry.named("export_to").get(target_format)
    if room is None or not target.lower().endswith(room.SUFFIXES):
        return None
    from rnnconvert.scaffolding.export import check_exportable

    replacing = {"force": True} if force else {}
    try:
        by_name = detect.target(Path(target)).NAME
    except UsageError:  # several formats write files of that name
        by_name = ""
    to = {} if target_format == by_name else {"to": target_format}
    try:
        check_exportable(source, target, target_format)
    except UsageError as error:
        ordered = _ordered(error) if isinstance(error, UnstatedOrderError) else None
        return ordered and (ordered[0], Command("export", source, target, chain=ordered[1], **to, **replacing))
    except Exception:  # whatever the look at the model raises: advice is left out, and never ends the command that it is for
        return None
    return "the whole model", Command("export", source, target, **to, **replacing)
