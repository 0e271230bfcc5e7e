"""The statements of a TorchScript archive's code about the layers whose weights it reads: functions, sizes, order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rnnconvert.core.arrays import Source
from rnnconvert.core.errors import RefusedError
from rnnconvert.core.notes import LayerNote
from rnnconvert.core.remedies import Setting
from rnnconvert.formats.pytorch.torchscript_code import CELLS, SEQUENCES, WeightsCall
from rnnconvert.language.layout import Sizes

_NONLINEARITIES = {
    f"{before}{function}{after}": function
    for function in ("relu", "tanh")
    for before, after in (("rnn_", ""), ("rnn_", "_cell"), ("", ""), ("", "_"))
}
_CONSTANTS = ("has_biases", "num_layers", "dropout", "train", "bidirectional", "batch_first")


@dataclass(frozen=True)
class CodeStatement:
    """The code's statements about one layer.

    nonlinearity  the function of a plain RNN, or ""
    facts         batch_first and dropout, if they are stated
    warnings      warnings for the user
    """

    nonlinearity: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def flat_names(layers: int, directions: int, biases: bool, projection: bool) -> list[str]:
    """Return the parameters of a torch.nn.LSTM, GRU or RNN in the order in which torch's functions take them.

    Source: torch/nn/modules/rnn.py, RNNBase.__init__.
    """
    stems = ["weight_ih", "weight_hh", *(["bias_ih", "bias_hh"] if biases else []), *(["weight_hr"] if projection else [])]
    ends = ("", "_reverse")[:directions]
    return [f"{stem}_l{layer}{end}" for layer in range(layers) for end in ends for stem in stems]


def of_layer(path: Path, calls: Iterable[WeightsCall], prefix: str, names: Mapping[str, str], kind: str, sizes: Sizes) -> CodeStatement:
    """Return the statements of the calls that read a layer's weights.

    Raises RefusedError if the calls contradict one another, or the names and shapes of the weights.
    """
    layer_tensors = set(names.values())
    functions: dict[str, str] = {}
    facts: dict[str, Any] = {}
    warnings: list[str] = []
    for call in calls:
        flat = call.tensors == (f"{prefix}_flat_weights",)
        if not flat and not layer_tensors & set(call.tensors):
            continue
        if call.function in (*SEQUENCES, *CELLS):
            _check_kind(path, prefix, call, kind)
            if not flat:
                _check_order(path, prefix, call, names, sizes)
            constants = dict(zip(_CONSTANTS, call.constants, strict=False))
            _check_sizes(path, prefix, constants, sizes)
            if constants.get("train") is True and constants.get("dropout"):
                warnings.append(
                    LayerNote(
                        prefix.rstrip("."),
                        f"the archive was traced in training mode and drops "
                        f"{constants['dropout']:g} of the values between layers at every run; dropout is left out",
                        unnamed="the module itself",
                    )
                )
            facts |= {key: constants[key] for key in ("batch_first", "dropout") if constants.get(key) is not None}
            functions[_NONLINEARITIES.get(call.function, "")] = call.function
        elif kind == "rnn" and any(local.startswith("weight_hh") and full in call.tensors for local, full in names.items()):
            functions[_NONLINEARITIES.get(call.function, call.function)] = call.function
    functions.pop("", None)
    if len(functions) > 1 or not set(functions) <= {"relu", "tanh"}:
        raise RefusedError(
            f"an RNN that computes {' and '.join(sorted(functions))}",
            "the canonical form",
            f"the code of {path} calls {' and '.join(f'torch.{name}' for name in functions.values())} with the weights under {prefix!r}",
            f"Save the module's state_dict, and convert that with {Setting('nonlinearity', '...')}",
        )
    return CodeStatement(next(iter(functions), ""), facts, tuple(dict.fromkeys(warnings)))


def _check_kind(path: Path, prefix: str, call: WeightsCall, kind: str) -> None:
    if call.function.split("_")[0] != kind:
        raise RefusedError(
            f"a {kind.upper()} that runs as torch.{call.function}",
            "the canonical form",
            f"the weights under {prefix!r} are shaped as those of a {kind.upper()}, but the code of {path} calls "
            f"torch.{call.function} with them",
            "Save the state_dict of a module of torch.nn with these weights.",
        )


def _check_order(path: Path, prefix: str, call: WeightsCall, names: Mapping[str, str], sizes: Sizes) -> None:
    if call.function in CELLS:
        stems = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        expected = [names[stem] for stem in stems if stem in names]
        absent = {f"{prefix}{stem}" for stem in stems if stem not in names}  # a cell without biases hands in None
        tensors = [name for name in call.tensors if name not in absent]
    else:
        biases = "input_bias" in sizes.parts
        local = flat_names(sizes.num_layers, sizes.num_directions, biases, bool(sizes.projection_size))
        expected = [names.get(name, "") for name in local]
        tensors = list(call.tensors)
    if tensors != expected:
        raise RefusedError(
            "weights in an order of their own",
            "the canonical form",
            f"the code of {path} calls torch.{call.function} with {', '.join(call.tensors)}; expected {', '.join(expected)}",
            "Save the state_dict of a module of torch.nn with these weights.",
            prefix.rstrip("."),
        )


def _check_sizes(path: Path, prefix: str, constants: Mapping[str, Any], sizes: Sizes) -> None:
    biases = "input_bias" in sizes.parts
    expected = {"has_biases": biases, "num_layers": sizes.num_layers, "bidirectional": sizes.num_directions == 2}
    for key, value in expected.items():
        if constants.get(key) is not None and constants[key] != value:
            raise RefusedError(
                f"{key}={constants[key]} in the code, but {value} by the weights",
                "the canonical form",
                f"the code of {path} and the weights under {prefix!r} contradict one another",
                "Save the state_dict of a module of torch.nn with these weights.",
            )


def nameless(calls: Iterable[WeightsCall], arrays: Mapping[str, Source], claimed: set[str]) -> list[tuple[str, bool, dict[str, str]]]:
    """Return layers whose weights only the code names, as freezing leaves them: name, whether it is a cell, and its arrays.

    The weights of a call stand in torch's own order.
    """
    layers: dict[tuple[str, ...], tuple[str, bool, dict[str, str]]] = {}
    for call in calls:
        if call.function not in (*SEQUENCES, *CELLS) or not set(call.tensors) <= set(arrays):
            continue
        if call.tensors in layers or claimed & set(call.tensors):
            continue
        local = _locals(call)
        if local is not None and len(local) == len(call.tensors):
            base = call.function.split("_")[0] + ("_cell" if call.function in CELLS else "")
            same = sum(name == base or name.removeprefix(f"{base}_").isdecimal() for name, _, _ in layers.values())
            name = f"{base}_{same + 1}" if same else base
            layers[call.tensors] = name, call.function in CELLS, dict(zip(local, call.tensors, strict=True))
    return list(layers.values())


def written_out(calls: Iterable[WeightsCall], arrays: Mapping[str, Source], used: set[str]) -> list[str]:
    """Return warnings of sums of two products under a function, which may be an RNN cell whose weights lost their names."""
    layers = {}
    for call in calls:
        matrices = [name for name in call.tensors if name in arrays and arrays[name].ndim == 2]
        if call.function not in (*SEQUENCES, *CELLS) and len(matrices) > 1 and not used & set(matrices):
            key = call.function, frozenset(matrices)
            layers[key] = (
                f"the code computes {call.function} of a sum of products with {' and '.join(matrices)}. If that is a recurrent "
                "cell, save the model before freezing it, so that its weights keep their names"
            )
    return list(layers.values())


def _locals(call: WeightsCall) -> Sequence[str] | None:
    """Return torch's names of the tensors of a call; None where its constants do not show them."""
    count = len(call.tensors)
    if call.function in CELLS:
        return ("weight_ih", "weight_hh", "bias_ih", "bias_hh")[:count] if count in (2, 4) else None
    constants = dict(zip(_CONSTANTS, call.constants, strict=False))
    biases, layers, both = constants.get("has_biases"), constants.get("num_layers"), constants.get("bidirectional")
    if not isinstance(biases, bool) or not isinstance(layers, int) or not isinstance(both, bool) or layers > count:
        return None
    for projection in (False, True):
        names = flat_names(layers, 1 + both, biases, projection)
        if len(names) == count:
            return names
    return None
