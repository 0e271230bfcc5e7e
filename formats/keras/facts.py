"""How a Keras model calls its recurrent layers: what is unusual in a layer's configuration, and what the model gives it.

Sources: keras 1.2.2 layers/recurrent.py; keras 2.3.1 layers/{recurrent,wrappers}.py; tensorflow 2.15 keras/src/layers/rnn;
keras/src/layers/rnn and keras/src/models/functional.py (3.15).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rnnconvert.formats.keras.config import Entry, children

_ROUNDED = ("mixed_float16", "mixed_bfloat16")


def told(layer: Entry) -> Iterator[str]:
    """Yield what is unusual in how a layer is called."""
    config = layer.config
    if config.get("stateful"):
        yield "it is stateful: it begins a batch with the state that the last one left, which the weights do not hold"
    if config.get("time_major"):
        yield "it is time_major: its input has the axes (time, batch, features)"
    if config.get("num_constants"):
        yield f"it is called with {config['num_constants']!r} constants, which Keras's own cells do not read"
    if config.get("zero_output_for_mask"):
        yield "its outputs are zero where its input is masked"
    dtype = config.get("dtype")
    named = dtype.get("config") if isinstance(dtype, Mapping) else {"name": dtype}
    policy = named.get("name") if isinstance(named, Mapping) else None
    if isinstance(policy, str) and policy in _ROUNDED:
        yield f"it computes in {policy.removeprefix('mixed_')} there ({policy}), but its weights are kept unchanged"


def around(model: Entry, depth: int = 0) -> dict[str, list[str]]:
    """Return what the layers of a model receive besides a sequence, by the name of each layer: states, constants and
    masks."""
    found: dict[str, list[str]] = {}
    if depth > 50:
        return found
    raw = model.config.get("layers")
    layers = [one for one in raw if isinstance(one, Mapping)] if isinstance(raw, list) else []
    entries = {layer.name: layer for layer in children(model)}
    above: dict[str, list[str]] = {}
    masked: dict[str, str] = {}
    before = ""
    for one in layers:
        config = one.get("config")
        name = str(one.get("name") or (config.get("name") if isinstance(config, Mapping) else "") or "")
        calls = [_call(node) for node in _listed(one.get("inbound_nodes"))]
        sequence = [source for first, _ in calls for source in first[:1]]
        above[name] = sequence if calls else [before] if before else []
        before = name
        given: list[str] = []
        for first, named in calls:
            states = first[1:] + named.get("initial_state", [])
            if states:
                given.append(
                    f"the model gives its initial state ({', '.join(dict.fromkeys(states))}): pass it at every call"
                )
            if named.get("constants"):
                given.append(f"it is called with constants ({', '.join(named['constants'])})")
            if named.get("mask"):
                given.append(f"a mask is passed to it ({', '.join(named['mask'])}): pass the lengths of its sequences")
        masking = masked[name] = _masking(above[name], entries, masked)
        if masking and not any("mask" in one for one in given):
            given.append(f"{masking!r} before it masks steps of its input: pass the lengths of its sequences")
        if given:
            found[name] = list(dict.fromkeys(given))
    for layer in entries.values():
        for name, given in around(layer, depth + 1).items():
            found.setdefault(name, given)
    return found


def _masking(sources: Iterable[str], entries: Mapping[str, Entry], masked: Mapping[str, str]) -> str:
    """Return which layer masks steps: one of these, or else one that they read, at any distance; "" if none does.

    masked  what this function returned for the layers listed earlier in the model: each layer is listed after those it reads
    """
    for source in sources:
        layer = entries.get(source)
        if layer is not None and (layer.class_name == "Masking" or layer.config.get("mask_zero")):
            return source
    return next((masked[source] for source in sources if masked.get(source)), "")


def _call(node: object) -> tuple[list[str], dict[str, list[str]]]:
    """Return the layers whose outputs one call reads: those given by place, and by name."""
    if isinstance(node, Mapping):  # Keras 3
        named = node.get("kwargs")
        by_name = (
            {str(key): list(_sources(value)) for key, value in named.items()} if isinstance(named, Mapping) else {}
        )
        args = _listed(node.get("args"))
        first = list(_sources(args[:1])) + list(_sources(args[1:2]))
        if len(args) > 2:
            by_name.setdefault("mask", []).extend(_sources(args[2]))
        return first, by_name
    first, by_name = [], {}
    for one in _listed(node):
        if isinstance(one, list) and one and isinstance(one[0], str):
            first.append(one[0])
            more = one[3] if len(one) > 3 and isinstance(one[3], Mapping) else {}
            for key, value in more.items():
                by_name.setdefault(str(key), []).extend(_sources(value))
    return first, by_name


def _sources(value: Any, depth: int = 0) -> Iterator[str]:
    """Yield the layers whose outputs a value refers to."""
    if depth > 20:
        return
    if isinstance(value, Mapping):
        config = value.get("config")
        history = config.get("keras_history") if isinstance(config, Mapping) else None
        if isinstance(history, list) and history and isinstance(history[0], str):
            yield history[0]
    elif isinstance(value, list):
        if len(value) >= 3 and isinstance(value[0], str) and all(isinstance(one, int) for one in value[1:3]):
            yield value[0]
            return
        for one in value:
            yield from _sources(one, depth + 1)


def _listed(value: object) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else []
