"""`rnnconvert.convert`: from file to file, and proved if that is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from rnnconvert.core.arguments import passes_on, split_keywords
from rnnconvert.core.errors import NotEqualError, UsageError
from rnnconvert.core.remedies import Flag
from rnnconvert.files.convert import SaveTarget, Writing, convert_file
from rnnconvert.files.in_memory import PathLike, Source
from rnnconvert.files.options import Options
from rnnconvert.files.settings import as_settings
from rnnconvert.files.summary import Summary

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from rnnconvert.files.option_types import ConversionOptions
    from rnnconvert.verification.plan import Plan


@passes_on(Writing, options=True)
def convert(
    source: Source,
    target: PathLike,
    *,
    source_format: str | None = None,
    target_format: str | None = None,
    layers: Sequence[str] | str = (),
    verify: bool | Plan = False,
    assume_defaults: bool = False,
    settings: Iterable[str] = (),
    **options: Unpack[ConversionOptions],
) -> Summary:
    """Convert a file's recurrent layers into another format: `load`, then `save`.

    verify           whether to keep the result only if its own framework gives the same outputs as the source; or a Plan that states how;
                     the summary then has the report
    assume_defaults  whether functions that the source does not state are its framework's defaults

    Raises UndecidedError where such a function is left open.

    The other arguments are those of `load` and `save`. Raises what they raise, NotEqualError for a result that is not equal or
    could not be proved; on any error every existing file is left unchanged.

        >>> import rnnconvert as rc
        >>> summary = rc.convert("examples/encoder.keras", "encoder.pt", dry_run=True)
        >>> summary
        <Summary: would write encoder.pt (pytorch) from examples/encoder.keras (keras), 2 layers, rewritten, bit-exact>
        >>> summary.steps[0].rewrite
        'add zero biases'
    """
    if not isinstance(verify, bool) and type(verify).__name__ != "Plan":
        raise UsageError(f"verify is True, False or a rnnconvert.Plan, not {verify!r}")
    writing, rest = split_keywords(options, Writing)
    written = SaveTarget(target, target_format, layers, assume_defaults, **writing)
    if verify is False:
        return convert_file(source, source_format, written, Options(rest, settings))
    if written.dry_run:
        raise UsageError(f"{Flag('dry-run')} writes nothing that could be verified. Choose either {Flag('dry-run')} or {Flag('verify')}")
    from rnnconvert.verification.proved import convert_verified

    words, plan = (*as_settings(rest), *settings), None if verify is True else verify
    summary, report = convert_verified(source, source_format, written, words, plan)
    if report.exit_code:
        raise NotEqualError(target, report)
    return replace(summary, report=report)
