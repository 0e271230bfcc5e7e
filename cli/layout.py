"""rnnconvert layout: where each number of a configuration lies."""

from __future__ import annotations

from typing import Any

import click

from rnnconvert.cli import completion
from rnnconvert.cli.terminal import emit, put
from rnnconvert.cli.values import in_one

_EPILOG = """\b
Examples:
  rnnconvert layout cudnn --cell lstm --input-size 3 --hidden-size 5
  rnnconvert layout cudnn --cell lstm --num-layers 2 --bidirectional
  rnnconvert layout keras --cell gru --no-reset-after --json
"""


@click.command(epilog=_EPILOG)
@click.argument("format", shell_complete=completion.formats)
@click.option(
    "--cell", type=click.Choice(["rnn", "gru", "lstm"], case_sensitive=False), default="lstm", show_default=True, help="The cell."
)
@click.option("--input-size", default=3, show_default=True, type=click.IntRange(1), metavar="N", help="Size of the input.")
@click.option("--hidden-size", default=5, show_default=True, type=click.IntRange(1), metavar="N", help="Number of units.")
@click.option("--num-layers", default=1, show_default=True, type=click.IntRange(1, 4096), metavar="N", help="Number of layers.")
@click.option("--bidirectional", is_flag=True, help="Both directions.")
@click.option("--projection-size", default=0, type=click.IntRange(0), metavar="N", help="Size of the projection; 0 for none.")
@click.option(
    "--biases",
    metavar="WHICH",
    type=click.Choice(["both", "input", "recurrent", "none"]),
    help="both, input, recurrent or none; by default, what the format prefers.",
)
@click.option("--skip-input", is_flag=True, help="No input weights in the first layer (cuDNN).")
@click.option("--peepholes", is_flag=True, help="With peepholes.")
@click.option("--reset-after/--no-reset-after", default=True, show_default=True, help="Place of a GRU's reset gate.")
@click.option("--variant", default="", metavar="NAME", help="Another layout of the format.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@in_one
def layout(asked: Any) -> None:
    """Print the arrays of FORMAT, and where each gate starts in them."""
    from rnnconvert.core.errors import UsageError
    from rnnconvert.language import registry
    from rnnconvert.language.layout import Sizes
    from rnnconvert.language.places import offsets, shapes

    chosen = registry.layout(asked.format, asked.cell, asked.reset_after if asked.cell == "gru" else None, asked.variant)
    mode = asked.biases or chosen.holds.biases[0]
    parts = {"input", "recurrent"} | ({"projection"} if asked.projection_size else set())
    parts |= {"both": {"input_bias", "recurrent_bias"}, "none": set()}.get(mode, {f"{mode}_bias"})
    parts |= {"peephole"} if asked.peepholes else set()
    absent = sorted(part for part in parts if part not in chosen.part_names)
    if absent:
        raise UsageError(f"{chosen.name} has no {absent[0]}")
    if asked.skip_input and (not chosen.holds.skip_input or asked.input_size != asked.hidden_size):
        raise UsageError("skip input exists only in cuDNN, and needs an input as wide as the cell. Set --input-size to --hidden-size")
    if asked.projection_size > asked.hidden_size:
        raise UsageError(f"a projection of {asked.projection_size} is wider than the {asked.hidden_size} units. Choose a smaller one")
    directions = 2 if asked.bidirectional else 1
    form = Sizes(
        asked.cell,
        asked.input_size,
        asked.hidden_size,
        asked.num_layers,
        directions,
        asked.projection_size,
        frozenset(parts),
        asked.skip_input,
    )
    try:
        table, arrays = offsets(chosen, form), shapes(chosen, form)
    except ValueError as error:
        raise UsageError(f"{error}; it holds one layer of one direction") from None
    if asked.as_json:
        emit({"layout": chosen.name, "source": chosen.source, "arrays": arrays, "offsets": [row._asdict() for row in table]})
        return
    put(f"{chosen.name}: {chosen.class_name}, gates {chosen.gates}  (source: {chosen.source})")
    for name, shape in arrays.items():
        put(f"  {name}  {shape}")
    put(f"{'array':20} {'layer':>5} {'direction':>9} {'part':15} {'gate':4} {'offset':>10}  {'shape':14} strides")
    for row in table:
        put(f"{row.array:20} {row.layer:5d} {row.direction:9d} {row.part:15} {row.gate:4} {row.offset:10d}  {row.shape!s:14} {row.strides}")
