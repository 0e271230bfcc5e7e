"""Paddle's inference models: a program, NAME.pdmodel or NAME.json, and its parameters in one file, NAME.pdiparams.

paddle.jit.save and paddle.static.save_inference_model write them. The parameters have no names in that file: they stand in the order
of the names in the program.

Source: python/paddle/static/io.py (2.6.2) and pir_io.py (3.3.1), save_vars; python/paddle/nn/layer/rnn.py, RNNBase.flatten_parameters
for the order of an operator's weights: the weights of all layers and directions, then their biases.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from rnnconvert.containers.companions import companion
from rnnconvert.containers.files import lowered
from rnnconvert.core.arrays import Array, is_float
from rnnconvert.core.cells import RELU, TANH
from rnnconvert.core.errors import NotALayerError, UnreadableError
from rnnconvert.core.notes import UNREAD, LayerNote
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.files.opened import STATED, FormatClaim, Opened
from rnnconvert.files.options import Options
from rnnconvert.formats.paddle import lod_tensor, pir
from rnnconvert.formats.paddle import program as protobuf
from rnnconvert.formats.paddle.flow import read as read_graph
from rnnconvert.formats.paddle.program import ProgramOperator, StatedProgram
from rnnconvert.graphs.program.places import stored_by
from rnnconvert.language import registry
from rnnconvert.language.fitting import fits, misfit
from rnnconvert.language.packing import assemble, unpack

PROGRAMS, PARAMETERS = (".json", ".pdmodel"), ".pdiparams"

_MODES = {"LSTM": "lstm", "GRU": "gru", "RNN_TANH": "rnn", "RNN_RELU": "rnn"}
_OTHERS = {
    "while": "a loop that computes something step by step, as paddle.nn.RNN around a cell and a projected LSTM do, is not read from a "
    "program. Save its state_dict (paddle.save, .pdparams)",
    **dict.fromkeys(
        ("lstm", "gru", "lstmp", "cudnn_lstm", "gru_unit", "lstm_unit", "fusion_gru", "fusion_lstm", "multi_gru", "attention_lstm"),
        "this operator is not read from an inference model. Save the parameters one to a file, for the format fluid",
    ),
}
_FILLS = ("fill_constant", "fill_constant_batch_size_like", "full", "full_batch_size_like", "full_with_tensor", "zeros")
_STATED = frozenset({"mode", "num_layers", "is_bidirec", "hidden_size", "input_size"})
_HARMLESS = frozenset(
    {"op_role", "op_namescope", "op_callstack", "op_device", "op_role_var", "is_test", "use_mkldnn", "use_cudnn", "dropout_prob", "seed",
     "with_quant_attr", "struct_name", "stop_gradient"}
)  # fmt: skip


def recognise(file: Opened) -> FormatClaim | None:
    """Recognize a program by its beginning or its ending, and parameters by the program next to them."""
    if pir.looks_like(file.head):
        return FormatClaim(STATED, "a program of Paddle 3 in JSON")
    ending = lowered(file.path).suffix
    if ending == PROGRAMS[1] and file.head[:1] == b"\n":
        return FormatClaim(STATED, "a program of Paddle's, by its ending and its beginning")
    if ending == PARAMETERS and lod_tensor.looks_like(file.path):
        return FormatClaim(STATED, "the parameters of a Paddle program, by its ending and its beginning")
    return None


def read(path: Path, options: Options) -> Checkpoint:
    """Return every recurrent layer of a model. Raises UnreadableError for a damaged or missing file."""
    program, arrays = _opened(path)
    layers: dict[str, Recurrent] = {}
    placed: list[tuple[ProgramOperator, Recurrent]] = []
    used: set[str] = set()
    unread, warnings, evidence = [], [], []
    operators = program.graphs[0]
    makes = {name: maker for maker in operators for names in maker.outputs.values() for name in names}
    for operator, name in _named(operators):
        if operator.type != "rnn":
            unread.append(LayerNote(name, str(_OTHERS[operator.type]), UNREAD))
            continue
        try:
            layers[name], homes = _layer(name, operator, arrays, options, program.path.name)
        except NotALayerError as error:
            unread.append(LayerNote(name, str(error), UNREAD))
            continue
        used |= homes
        placed.append((operator, layers[name]))
        evidence.append(f"{name}: {program.path.name} has an operator rnn of the mode {operator.attributes['mode']}")
        warnings += _given_states(name, operator, makes)
    graph, calls = read_graph(program, placed, arrays)
    for name, received in calls.items():
        layers[name] = layers[name].replace(calls=received)
    for name, computed in ({} if graph is None else graph.computed).items():
        layers[name] = computed.stack
        warnings += computed.warnings
        evidence.append(computed.evidence)
        used |= set() if graph is None else stored_by(graph.scopes[0], computed.nodes)
    others = {name: array for name, array in arrays.items() if name not in used and array.size}
    return Checkpoint(
        str(path), "paddle", layers, others, tuple(evidence), options.questions, (*unread, *warnings), {}, arrays, graph, tuple(unread)
    )


def _opened(path: Path) -> tuple[StatedProgram, dict[str, Array]]:
    """Return the program and the arrays of a model, which goes by either of its files."""
    stem = path.with_suffix("") if lowered(path).suffix in (*PROGRAMS, PARAMETERS) else path
    program, parameters = path, stem.with_name(stem.name + PARAMETERS)
    if lowered(path).suffix == PARAMETERS:
        there = [candidate for ending in PROGRAMS if (candidate := stem.with_name(stem.name + ending)).is_file()]
        if len(there) != 1:
            names = " or ".join(stem.name + ending for ending in PROGRAMS)
            raise UnreadableError(
                path,
                f"the program that names its tensors, {names}, is {'missing' if not there else 'there twice'}",
                "Put the program of this model next to it." if not there else "Name the program in place of the parameters.",
            )
        program, parameters = there[0], path
    for file in (program, parameters):
        companion(path, file.name)
    model = pir.read(program) if lowered(program).suffix == PROGRAMS[0] else protobuf.read(program)
    if not model.graphs:
        raise UnreadableError(program, "it has no graph: it is not a program of Paddle's")
    if not parameters.is_file() and not model.parameters:
        return model, {}  # Paddle 3 writes none
    if not parameters.is_file():
        raise UnreadableError(
            path, f"its parameters, {parameters.name}, are missing", "Put them next to it: a program has no numbers of its own."
        )
    return model, lod_tensor.read_all(parameters, model.parameters)


def _named(operators: tuple[ProgramOperator, ...]) -> Iterator[tuple[ProgramOperator, str]]:
    """Yield the recurrent operators, each with a separate name."""
    counts: dict[str, int] = {}
    for operator in operators:
        if operator.type != "rnn" and operator.type not in _OTHERS:
            continue
        reserve = [*operator.inputs.get("DropoutState", ()), *operator.outputs.get("DropoutState", ())]
        matched = re.fullmatch(r"(.+?)\.dropout_state.*", reserve[0], re.S) if reserve else None
        weights = operator.inputs.get("WeightList", ())
        if matched:
            name = matched[1]
        elif weights:
            name = weights[0].rpartition(".")[0]
        else:
            name = operator.type
        counts[name] = counts.get(name, 0) + 1
        yield operator, name if counts[name] == 1 else f"{name}.{counts[name]}"


def _layer(name: str, operator: ProgramOperator, arrays: Mapping[str, Array], options: Options, where: str) -> tuple[Recurrent, set[str]]:
    """Return a layer, and the names of its arrays. Raises NotALayerError."""
    settings = operator.attributes
    kind, number, bidirectional = _MODES.get(str(settings.get("mode"))), settings.get("num_layers"), bool(settings.get("is_bidirec"))
    if kind is None or not isinstance(number, int) or number < 1:
        raise NotALayerError(f"the mode {settings.get('mode')!r} with num_layers={number!r} is unknown")
    weights = operator.inputs.get("WeightList", ())
    ways = 1 + bidirectional
    if len(weights) != 4 * number * ways:
        raise NotALayerError(f"it reads {len(weights)} weights, expected {4 * number * ways}")
    computed = [full for full in weights if full not in arrays]
    if computed:
        raise NotALayerError(f"its weight {computed[0]!r} is computed by the model, not stored")
    odd = [full for full in weights if not is_float(arrays[full])]
    if odd:
        raise NotALayerError(f"{odd[0]!r} is of type {arrays[odd[0]].dtype}, not of floating-point numbers")
    homes = {}
    for place in range(number * ways):
        layer, way = divmod(place, ways)
        above = f"{layer}.{('cell_fw', 'cell_bw')[way] if bidirectional else 'cell'}"
        for part, words in enumerate(("weight", "bias")):
            for end, side in enumerate(("ih", "hh")):
                homes[f"{above}.{words}_{side}"] = weights[2 * (number * ways * part + place) + end]
    layer_arrays = {local: arrays[full] for local, full in homes.items()}
    layout = registry.layout_named(f"paddle.{kind}")
    shapes = {local: tuple(array.shape) for local, array in layer_arrays.items()}
    sizes = next((fit for fit in fits(layout, shapes) if fit.num_directions == ways), None)
    if sizes is None:
        raise NotALayerError(f"its parameters do not fit together: {misfit([layout], shapes)}")
    stated = {"hidden_size": sizes.hidden_size, "input_size": sizes.input_size}
    for word, value in stated.items():
        if settings.get(word, value) != value:
            raise NotALayerError(f"its program states {word}={settings[word]}, but its arrays have {value}")
    options.facts(name, where, {word: value for word, value in settings.items() if word not in _STATED}, harmless=_HARMLESS)
    cell = layout.cell
    if kind == "rnn":
        function = RELU if settings["mode"] == "RNN_RELU" else TANH
        options.stated("nonlinearity", name, str(function), where)
        cell = cell.replace(activation=function)
    return assemble(name, cell, unpack(layout, sizes, layer_arrays), ways), set(weights)


def _given_states(name: str, operator: ProgramOperator, makes: Mapping[str, ProgramOperator]) -> list[LayerNote]:
    """Return warnings about what the model gives a layer in addition to its input."""
    notes = []
    for state in operator.inputs.get("PreState", ()):
        maker = makes.get(state)
        if maker is None or maker.type not in _FILLS or not _is_zero(maker):
            notes.append(LayerNote(name, f"its model gives it an initial state ({state!r}). Pass it yourself"))
    if lengths := operator.inputs.get("SequenceLength", ()):
        notes.append(LayerNote(name, f"its model gives it the lengths of its sequences ({lengths[0]!r}). Pass them yourself"))
    return notes


def _is_zero(operator: ProgramOperator) -> bool:
    value = operator.attributes.get("value", operator.attributes.get("str_value"))
    try:
        return operator.type == "zeros" or float(value or 0) == 0
    except ValueError:
        return False
