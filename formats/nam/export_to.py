"""A described model with its weights as a .nam file of the architecture LSTM: LSTM layers and a head.

Source: NeuralAmpModelerCore, NAM/lstm.cpp: LSTM::LSTM for the order of the weights, parse_config_json for the sizes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rnnconvert.core.errors import RefusedError
from rnnconvert.core.remedies import TargetSetting
from rnnconvert.language import registry

if TYPE_CHECKING:  # a conversion asks for the endings alone
    from rnnconvert.scaffolding.description import Description
    from rnnconvert.scaffolding.export_target import ExportedGraph
    from rnnconvert.scaffolding.weights import LayerWeights

NAME = "nam"
TITLE = "Neural Amp Modeler"
SUFFIXES = registry.endings(NAME)
OPTIONS = ("sample_rate",)
BY_STEPS = "a plug-in runs the file step by step, and keeps its states"


def graph(description: Description, weights: LayerWeights, sample_rate: str = "") -> ExportedGraph:
    """Return a model as an LSTM with its head. Raises RefusedError for other layers."""
    from rnnconvert.formats.nam.files import document_of
    from rnnconvert.scaffolding.chain import chain_of
    from rnnconvert.scaffolding.stream import fitted, one_stack, refuse_gains, samples, stream_file

    chain = chain_of(description, weights)
    refuse_gains(chain, TITLE)
    if chain.skip:
        raise RefusedError("the input that is added to the output", TITLE, "its LSTM gives what its head gives")
    stack, head = one_stack(chain, TITLE)
    _, lstm = fitted(stack, NAME)
    numbers = np.concatenate([np.asarray(head.parts[part]).reshape(-1) for part in ("weight", "bias")])
    document = document_of(lstm, numbers, head.units)
    if sample_rate:
        return stream_file(chain, {**document, "sample_rate": samples(sample_rate, "sample_rate")})
    return stream_file(
        chain, document, [f"the file states no sample_rate: {TargetSetting('sample_rate', '48000')} adds that of the recordings"]
    )
