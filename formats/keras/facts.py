"""How a Keras model calls its recurrent layers: what is unusual in a layer's configuration, and what the model gives it.

Sources: keras 1.2.2 layers/recurrent.py; keras 2.3.1 layers/{recurrent,wrappers}.py; tensorflow 2.15 keras/src/layers/rnn;
keras/src/layers/rnn and keras/src/models/functional.py (3.15).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from rnnconvert.core.notes import LayerNote
from rnnconvert.formats.keras.model.entries import Entry, every
from rnnconvert.formats.keras.model.layered import Layered, LayerStep
from rnnconvert.formats.keras.model.masks import MAY_MASK
from rnnconvert.formats.keras.model.operators import drops
from rnnconvert.formats.keras.model.settings import policy_of
from rnnconvert.formats.keras.run_exact import MIXED


def unusual_settings(layer: Entry) -> Iterator[str]:
    """Yield the unusual features of a layer's call."""
    config = layer.config
    if config.get("stateful"):
        yield "it is stateful: it begins a batch with the state that the last one left, which the weights do not hold"
    if config.get("time_major"):
        yield "it is time_major: its input has the axes (time, batch, features)"
    if config.get("num_constants"):
        yield f"it is called with {config['num_constants']!r} constants, which Keras's own cells do not read"
    policy = policy_of(config)
    if policy in MIXED:
        dtype = policy.removeprefix("mixed_")
        yield LayerNote("", f"it computes in {dtype} there ({policy}), but its weights are kept unchanged", dtype)


def around(model: Layered) -> dict[int, list[str]]:
    """Return the unusual features of the calls of a model's layers, and what these receive in addition to a sequence (states, constants,
    masks, dropout that is on), by the `id` of each layer's configuration.
    """
    words_by_layer: dict[int, list[str]] = {}
    calls: Counter[int] = Counter()
    for step in model.steps:
        for layer in every(step.layer):
            words_by_layer.setdefault(id(layer.config), []).extend(_given_words(step))
            calls[id(layer.config)] += 1
    for layer_id, number in calls.items():
        if number > 1:
            words_by_layer[layer_id].append(f"the model calls it {number} times")
    return {layer_id: list(dict.fromkeys(words)) for layer_id, words in words_by_layer.items() if words}


def _given_words(step: LayerStep) -> Iterator[str]:
    """Yield what one call gives a layer in addition to its sequence."""
    if step.has_states:
        makers = _names([tensor.step for tensor in step.states])
        yield f"the model gives its initial state{f' ({makers})' if makers else ''}: pass it at every call"
    if step.constants:
        yield f"it is called with constants ({_names([tensor.step for tensor in step.constants])})"
    if step.passed:
        yield f"a mask is passed to it ({_names(step.passed)}): pass the lengths of its sequences"
    elif step.mask:
        masks = "may mask" if MAY_MASK in step.mask else "masks"
        yield f"{step.mask} before it {masks} steps of its input: pass the lengths of its sequences"
    if (step.passed or step.mask) and any(layer.config.get("zero_output_for_mask") for layer in every(step.layer)):
        yield "its outputs are zero where its input is masked"  # Keras 3's Bidirectional sets it, though most models mask nothing
    if step.training and drops(step.layer.config):
        yield "its dropout is on, by training=True: what it gives is random"


def _names(steps: Sequence[LayerStep]) -> str:
    return ", ".join(dict.fromkeys(step.label for step in steps))
