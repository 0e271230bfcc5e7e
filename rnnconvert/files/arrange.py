"""Layers in the order and the layouts that a target takes."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Sequence

from rnnconvert import rewrites
from rnnconvert.core.errors import RefusedError, RnnConvertError, UsageError
from rnnconvert.core.names import first_twice
from rnnconvert.core.printable import listed, quoted
from rnnconvert.core.remedies import Flag, Setting
from rnnconvert.core.weights import Recurrent, Unknown
from rnnconvert.files.adapter import Adapter, adapter
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.files.load import check_names
from rnnconvert.files.options import Options
from rnnconvert.language import registry
from rnnconvert.language.layout import Layout
from rnnconvert.rewrites import Step
from rnnconvert.rewrites.fit_to_layout import ACCEPTS, Fitted, fit_to_layout
from rnnconvert.rewrites.join_stack import between


def arrange(checkpoint: Checkpoint, options: Options, wanted: Sequence[str] = ()) -> tuple[list[Recurrent], list[Step]]:
    """Return the stacks to write, joined or split as the options state.

    wanted  the names of those to write, in this order; none for all

    Raises UsageError if layers that are to be joined do not read one another, or if none has one of the names.
    """
    stacks, steps = list(checkpoint.layers.values()), []
    check_names(checkpoint, options)
    join = options.peek("stack") == "join"
    if join and len(stacks) < 2:
        options.unfit("stack", stacks[0].name, "is the only layer: there is nothing to join it with")
    elif join:
        options.get("stack")
        for below, above in itertools.pairwise(stacks):
            if (blocker := between(below, above)) is not None:
                raise RefusedError(
                    "layers with something between them",
                    "one stack",
                    str(blocker),
                    f"Convert them separately, without {Setting('stack', 'join')}.",
                )
            if isinstance(above.reads, Unknown):
                why = f"{above.reads.why}: that it reads {quoted(below.name)} directly is taken for granted"
                options.ask("between", above.name, assumed="nothing", why=why)
        if (obstacle := rewrites.JOIN_STACK.applies(stacks)) is not None:
            raise UsageError(f"these layers cannot be joined: {obstacle}. Choose and order them with {Flag('layer')}.")
        joined = rewrites.join_stack(stacks)
        steps.append(Step(rewrites.JOIN_STACK.name, joined.name, f"{len(stacks)} layers joined into one stack", True))
        stacks = [joined]
    for option, rewrite in (("stack", rewrites.SPLIT_STACK), ("directions", rewrites.SPLIT_DIRECTIONS)):
        pieces: list[Recurrent] = []
        for stack in stacks:
            parts = _split(stack, option, rewrite, options)
            if len(parts) > 1:
                names = [part.name for part in parts]
                chosen = [name for name in names if name in wanted] or names
                others = [name for name in names if name not in chosen]
                outcome = f"written as {listed(chosen)}" + (f", without {listed(others)}" if others else "")
                steps.append(Step(rewrite.name, stack.name, outcome, True))
            pieces += parts
        stacks = pieces
    names = [stack.name for stack in stacks]
    twice = first_twice(names)
    if twice is not None:
        raise UsageError(f"two layers would both be written as {twice!r}. Convert them one by one with {Flag('layer')}")
    by_name = {stack.name: stack for stack in stacks}
    absent = [name for name in wanted if name not in by_name]
    if absent:
        raise UsageError(f"no layer is written as {absent[0]!r}. There are {listed(by_name)}")
    return [by_name[name] for name in wanted] or stacks, steps


def _split(
    stack: Recurrent, option: str, rewrite: rewrites.Rewrite[Recurrent, [], list[Recurrent]], options: Options
) -> Sequence[Recurrent]:
    """Return the pieces of a stack that is to be split, or the stack alone. Raises UsageError where it cannot be split."""
    if options.peek(option, stack.name) != "split":
        return [stack]
    if obstacle := rewrite.applies(stack):
        raise UsageError(". ".join(filter(None, (str(obstacle), obstacle.remedy))))
    pieces = rewrite.apply(stack)
    if len(pieces) > 1:
        options.get(option, stack.name)
    else:
        options.unfit(option, stack.name, f"has one {'layer' if option == 'stack' else 'direction'}")
    return pieces


def accepted(options: Options, layer: str) -> list[str]:
    """Return the features of a layer that the caller takes over."""
    return [name for name, (value, _) in ACCEPTS.items() if options.peek(name, layer) == value]


def fitted(stack: Recurrent, writer: Adapter, options: Options, retyped: bool = False) -> Fitted:
    """Bring a stack into the form of one of a format's layouts, with what the options decide; what decided something is used.

    retyped  whether the caller chose the element type that is written

    Raises RefusedError where no exact rewrite leads there, UsageError for a layout that the format does not write.
    """
    layouts = asked_first(stack, writer.layouts(options.of_layer(stack.name)), options)
    return fitted_in(stack, layouts, options, retyped)


def asked_first(stack: Recurrent, layouts: Sequence[Layout], options: Options) -> Sequence[Layout]:
    """Return the layouts of a format that a stack may go to: the one that the caller asks for, or all of them.

    Raises UsageError for one that the format does not have.
    """
    framework = layouts[0].framework if layouts else ""
    asked, _, variant = (options.peek("layout", stack.name) or "").rpartition(".")
    if not variant or asked not in ("", framework):
        return layouts
    writable = [layout for layout in registry.layouts_of(framework) if layout.writable]
    chosen = next((candidate for candidate in writable if candidate.name == f"{framework}.{variant}"), None)
    if chosen is None:
        raise UsageError(f"{framework} writes no layout {variant!r}. It writes {', '.join(candidate.name for candidate in writable)}")
    chosen = next((other for other in layouts if other.name == chosen.name), chosen)
    kinds = {direction.cell.kind for _, _, direction in stack.directions()}
    if chosen.kind not in kinds:
        fitting = ", ".join(other.name for other in writable if other.kind in kinds) or "none"
        options.unfit("layout", stack.name, f"is a {stack.cell.kind}: the layouts for it are {fitting}")
        return layouts
    options.get("layout", stack.name)
    return [chosen] if len(kinds) == 1 else [chosen, *(other for other in layouts if other != chosen)]


def fitted_in(stack: Recurrent, layouts: Sequence[Layout], options: Options, retyped: bool = False) -> Fitted:
    """Bring a stack into the form of one of these layouts, with what the options take over; what was taken over is used.

    Raises RefusedError where no exact rewrite leads there.
    """
    part = fit_to_layout(stack, layouts, accepted(options, stack.name), retyped)
    for step in part.steps:
        if step.rewrite in ACCEPTS:
            options.get(step.rewrite, stack.name)
    return part


def proposed(write: Callable[[Adapter], object]) -> contextlib.AbstractContextManager[None]:
    """Let refusals propose only the formats in which what is at hand can be written, as far as they can be asked here.

    write  writes it in a format, for a dry run
    """

    @functools.cache
    def reaches(name: str) -> bool:
        with registry.proposing(lambda _: True):
            try:
                write(adapter(name))
            except RnnConvertError:
                return False
        return True

    return registry.proposing(reaches)


def split_step(part: Fitted) -> Step:
    detail = f"unstacked into {part.stack.num_layers} layers"
    return Step(rewrites.SPLIT_STACK.name, part.stack.name, detail, True)
