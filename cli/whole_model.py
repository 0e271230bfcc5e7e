"""What `scaffold` offers where a layer's format cannot hold what the layer computes: the whole model as code, which can."""

from __future__ import annotations

from pathlib import Path

from rnnconvert.core.errors import RefusedError, RnnConvertError, UndecidedError, UnreadLayersError
from rnnconvert.core.remedies import Command

_AS_CODE = {"pytorch": "pytorch", "keras": "keras", "jax": "flax"}
"""The framework that code is written for, by the format of the weights that were wanted."""


def offers(error: RefusedError, source: str, target_format: str) -> tuple[str, ...]:
    """Return what `scaffold` does with a file of which `convert` refused a layer; nothing where it refuses it, too.

    target_format  what was wanted of the layers: code for another framework helps only where no format holds a layer
    """
    framework = _AS_CODE.get(target_format, "pytorch" if isinstance(error, UnreadLayersError) else "")
    if not framework or isinstance(error, UndecidedError) or not Path(source).exists():
        return ()
    from rnnconvert.scaffolding.scaffold import targets
    from rnnconvert.scaffolding.sources import described

    title = targets()[framework].TITLE
    try:
        targets()[framework].write(described(Path(source))[1], source)
    except RnnConvertError:
        return ()
    command = Command("scaffold", source, to=framework, output="model.py")
    return (f"To write the whole model as {title} code, which computes this layer, too: {command}",)
