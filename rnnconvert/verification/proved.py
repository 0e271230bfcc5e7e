"""Convert and prove in one go: the target appears only once its own framework gave the same outputs as the source."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from rnnconvert.containers.data_files import old_data
from rnnconvert.containers.files import check_target, move_together, only_replace
from rnnconvert.containers.temporary import new_folder
from rnnconvert.core.errors import UsageError, for_user, show_as, unwritable
from rnnconvert.core.remedies import Flag, Setting
from rnnconvert.core.verdict import BY_LAYER
from rnnconvert.core.weights import Recurrent
from rnnconvert.files import detect
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.files.convert import SaveTarget, convert_file
from rnnconvert.files.in_memory import Source, path_of
from rnnconvert.files.load import load, load_with
from rnnconvert.files.options import Options
from rnnconvert.files.summary import Summary
from rnnconvert.files.targets import check_files, files_of
from rnnconvert.language import registry
from rnnconvert.rewrites import FOLD_PROJECTION
from rnnconvert.rewrites.fit_to_layout import ACCEPTS
from rnnconvert.verification.plan import Plan, Watch
from rnnconvert.verification.report import Report
from rnnconvert.verification.verify import command_of, verify


def convert_verified(
    source: Source,
    source_format: str | None,
    target: SaveTarget,
    settings: Iterable[str] = (),
    plan: Plan | None = None,
    watch: Watch = lambda text, done=0, total=0: None,
) -> tuple[Summary, Report]:
    """Convert like `rnnconvert.convert`, then verify the result like `rnnconvert.verify`; keep it only if nothing differs, and joined
    layers were run whole.

    settings  options of both, "KEY=VALUE" or "LAYER:KEY=VALUE"
    plan      how it is verified; its layers, pairs and settings are the conversion's

    Raises the errors of both, and UsageError if an option leaves a part of the function to the caller, so that the file by itself computes
    something else, or if a projection is folded.
    """
    source, words, path = path_of(source, "convert"), list(settings), Path(target.path)
    _nothing_taken_over(words)
    check_target(path, target.force)
    # Beside the target, so that putting it in its place is a renaming.
    with _folder_next_to(path) as folder:
        written = Path(folder) / path.name
        show_as(written, path)
        show_as(folder, path.parent)
        summary = convert_file(source, source_format, replace(target, path=written, force=True), Options(settings=words))
        assert summary.checkpoint is not None
        files = files_of(detect.target(path, target.format), path)
        check_files(files, summary.checkpoint, target.force)
        _nothing_folded(path, summary)
        options = Options(settings=words)
        layers = load_with(source, source_format, options).layers
        stacks = [stack for name, stack in layers.items() if not target.layers or name in target.layers]
        result = load(summary.target, summary.target_format)
        _nothing_left_to_turn(path, result, stacks)
        chosen = replace(
            plan or Plan(),
            layers=target.layers,
            settings=(),
            settings_a=options.ledger.decisive(),
            settings_b=_unsaid(result, stacks),
            format_a=source_format,
            format_b=target.format,
        )
        report = verify(source, written, chosen, watch=watch, command=command_of(source, path, chosen, {}))
        report.document["models"][0]["path"] = for_user(str(source))
        report.document["models"][-1]["path"] = str(path)
        # What was joined and not run whole is not proved: nothing is kept that only its layers vouch for.
        report.strict = report.verdict == BY_LAYER
        report.document["models"][-1]["kept"] = not report.exit_code
        if not report.exit_code:
            for file in sorted(Path(folder).iterdir()):
                only_replace(path.with_name(file.name), target.force, path)
            before = old_data(path)
            # The file itself comes last: what it points to is there before it.
            moved = sorted(Path(folder).iterdir(), key=lambda file: file.name == path.name)
            move_together([(file, path.with_name(file.name)) for file in moved], before)
    recipe = tuple(line.replace(repr(str(written)), repr(str(path))) for line in summary.recipe)
    return replace(
        summary,
        source=for_user(summary.source),
        target=str(path),
        written=not report.exit_code,
        recipe=recipe,
        files=tuple(str(path.with_name(Path(file).name)) for file in summary.files),
    ), report


@contextlib.contextmanager
def _folder_next_to(path: Path) -> Iterator[Path]:
    """Yield a temporary folder next to a file. Raises UsageError if none can be made there."""
    with contextlib.ExitStack() as ended:
        try:
            folder = ended.enter_context(new_folder(path))
        except OSError as error:
            raise unwritable(path, error) from None
        yield folder


def _nothing_taken_over(settings: Sequence[str]) -> None:
    options = Options(settings=settings)
    for name, (value, meaning) in ACCEPTS.items():
        if options.peek(name) == value or any(options.peek(name, layer) == value for layer in options.settings.layers()):
            raise UsageError(
                f"{Setting(name, value)} means that {meaning}: the file by itself does not compute what the source does, "
                f"and cannot be verified against it. Convert without {Flag('verify')}."
            )


def _nothing_folded(path: Path, summary: Summary) -> None:
    """Raise UsageError for a folded projection: layers are compared without the matrix after the layer."""
    folded = [step.layer for step in summary.steps if step.rewrite == FOLD_PROJECTION.name]
    if folded:
        raise UsageError(
            f"{path} was not written: the projection of {folded[0] or 'its layer'} is folded there, and a matrix follows the "
            f"layer, which a comparison of layers does not include. Convert without {Flag('verify')}, and compare both models' outputs. "
            + registry.conversion(lambda layout: "projection" in layout.part_names, "whose LSTM has projections", "Or choose")
        )


def _nothing_left_to_turn(path: Path, result: Checkpoint, stacks: Iterable[Recurrent]) -> None:
    """Raise UsageError for outputs that the target keeps in the order of processing: layers are compared without what turns them."""
    left = [name for name, stack in result.layers.items() if stack.output_order == "processing" and name not in result.turned]
    if left and all(stack.output_order == "time" for stack in stacks):
        raise UsageError(
            f"{path} was not written: {left[0]!r} reads from the end, and its outputs stand in the order of processing there until the "
            f"caller turns them, which a comparison of layers does not include. Convert without {Flag('verify')}, and compare both "
            f"models' outputs. "
            + registry.conversion(
                lambda layout: layout.holds.reverse and layout.holds.reverse_order == "time",
                "which has them in the order of time",
                "Or choose",
            )
        )


def _unsaid(result: Checkpoint, stacks: Iterable[Recurrent]) -> list[str]:
    """Return the settings of a plain RNN that the source stated and the target does not."""
    asked = {question.option for question in result.questions} & {"nonlinearity", "activation"}
    functions = {stack.cell.activation.name for stack in stacks if stack.cell.kind == "rnn"}
    return [f"{option}={function}" for option in asked for function in functions] if len(functions) == 1 else []
