"""A whole model of MXNet's as rnnconvert.scaffolding describes models."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from rnnconvert.core.errors import UsageError

if TYPE_CHECKING:  # a conversion enters no scaffolding
    from rnnconvert.scaffolding.description import Description
    from rnnconvert.scaffolding.fixed import FixedInputs
    from rnnconvert.scaffolding.needs import StatedAxes

NAME = "mxnet"
ASKS = ("axes", "fix")


def describe(path: Path, partial: bool = False, axes: StatedAxes = (), fix: FixedInputs = MappingProxyType({})) -> Description:
    """Return the graph next to a file of parameters: see rnnconvert/scaffolding/programs/reading.py.

    Raises UsageError for parameters without a graph, RefusedError for a graph whose nodes stand in no order.
    """
    from rnnconvert.formats.mxnet.flow import ReadSymbol
    from rnnconvert.formats.mxnet.symbol import symbol_of
    from rnnconvert.formats.mxnet.whole import SymbolModel
    from rnnconvert.scaffolding.programs.reading import describe as describe_program
    from rnnconvert.scaffolding.programs.reading import lengths_of, with_graph

    if symbol_of(path) is None:
        raise UsageError(f"{path} holds weights without a graph. Put its -symbol.json next to it, as export and save_checkpoint write it")
    checkpoint = with_graph(path, NAME)
    work = SymbolModel(checkpoint)
    if axes:
        ranks = {name: len(each) for name, each in lengths_of(work, axes).items()}
        work = SymbolModel(checkpoint.replace(read=checkpoint.read_as(ReadSymbol).again(ranks)))
    return replace(describe_program(work, "", partial, axes, fix), model=work.model(str(path)))
