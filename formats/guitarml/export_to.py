"""A described model with its weights as GuitarML's JSON: recurrent layers `rec`, a dense layer `lin`, and `skip`.

Source: Alec-Wright/CoreAudioML networks.py, SimpleRNN (forward, save_model), and miscfuncs.py, json_save.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rnnconvert.language import registry

if TYPE_CHECKING:  # a conversion asks for the endings alone
    from rnnconvert.scaffolding.description import Description
    from rnnconvert.scaffolding.export_target import ExportedGraph
    from rnnconvert.scaffolding.weights import LayerWeights

NAME = "guitarml"
TITLE = "GuitarML (CoreAudioML)"
SUFFIXES = registry.endings(NAME)
BY_STEPS = "a plug-in runs the file step by step, and keeps its states"


def graph(description: Description, weights: LayerWeights) -> ExportedGraph:
    """Return a model as SimpleRNN. Raises RefusedError for other layers than it has."""
    from rnnconvert.scaffolding.chain import chain_of
    from rnnconvert.scaffolding.stream import one_stack, packed, refuse_gains, stream_file

    chain = chain_of(description, weights)
    refuse_gains(chain, TITLE)
    stack, head = one_stack(chain, TITLE)
    layout, arrays = packed(stack, NAME)
    about = {
        "model": "SimpleRNN",
        "input_size": chain.inputs,
        "skip": chain.skip,
        "output_size": head.units,
        "unit_type": layout.class_name,
        "num_layers": stack.num_layers,
        "hidden_size": stack.hidden_size,
        "bias_fl": True,
    }
    state = {f"rec.{name}": array for name, array in arrays.items()}
    state |= {f"lin.{part}": head.parts[part] for part in ("weight", "bias")}
    return stream_file(chain, {"model_data": about, "state_dict": state})
