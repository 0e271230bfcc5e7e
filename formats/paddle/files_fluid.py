"""Fluid's folders of parameters: dynamic_gru and dynamic_lstm with the fc before each, by the names that Fluid gives.

Source: python/paddle/fluid/layers/rnn.py (1.8), dynamic_gru and dynamic_lstm; unique_name.py for names such as gru_0.w_0.
A program next to them (`__model__`) states the rest; without one, options supply what the parameters do not state. Inference models may
have all parameters in one file, `__params__`, in the order of their names (fluid/io.py, save_vars).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from rnnconvert.containers.companions import companion
from rnnconvert.containers.stored import Stored
from rnnconvert.core.arrays import Array, is_float
from rnnconvert.core.cells import Activation, Cell
from rnnconvert.core.errors import NotALayerError, UnreadableError, UsageError
from rnnconvert.core.notes import UNREAD, LayerNote
from rnnconvert.core.remedies import Flag, Setting
from rnnconvert.core.weights import Call, Recurrent, Unknown
from rnnconvert.files.adapter import Job, WriteResult, written_layouts
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.files.opened import SHAPED, FormatClaim, Opened
from rnnconvert.files.options import Options
from rnnconvert.formats.paddle import lod_tensor
from rnnconvert.formats.paddle import program as paddle_program
from rnnconvert.formats.paddle.flow import calls
from rnnconvert.formats.paddle.lowering import FluidOperator
from rnnconvert.language import registry
from rnnconvert.language.fitting import fit, misfit
from rnnconvert.language.layout import Layout
from rnnconvert.language.packing import assemble, unpack
from rnnconvert.rewrites import each

NAME = "fluid"
SUFFIXES = registry.endings(NAME)

_LAYER = re.compile(r"(?P<name>(?:.*[^A-Za-z0-9])?(?P<kind>gru|lstm)_\d+)\.w_0", re.S)
_PART = re.compile(r"(?P<name>(?:.*[^A-Za-z0-9])?(?:gru|lstm)_\d+)\.[wb]_\d+", re.S)
_GATES = {"gru": 3, "lstm": 4}


def recognise(file: Opened) -> FormatClaim | None:
    """Recognize a folder with parameters of dynamic_gru or dynamic_lstm, by their names and first bytes."""
    if not file.path.is_dir():
        return None
    combined = _combined(file.path)
    if combined is not None:
        return FormatClaim(SHAPED, f"a folder of a Fluid program and its parameters in one file, {combined.name}")
    try:
        names = (entry.name for entry in file.path.iterdir() if _LAYER.fullmatch(entry.name) and lod_tensor.looks_like(entry))
        name = next(names, "")
    except OSError:
        return None
    return FormatClaim(SHAPED, f"a folder of Fluid's parameters, {name} among them") if name else None


_ALL = ("__params__", "params")
"""The names of the file that has all parameters of a program (save_inference_model with params_filename)."""


def _combined(folder: Path) -> Path | None:
    """Return the file of a folder that has all parameters of the program next to it, in the order of their names."""
    matches = [folder / name for name in _ALL if (folder / name).is_file() and lod_tensor.looks_like(folder / name)]
    return matches[0] if len(matches) == 1 and paddle_program.program_in(folder) is not None else None


layouts = written_layouts(NAME)  # none: no maintained framework runs them


def write(path: Path, job: Job) -> WriteResult:
    """Raise UsageError: Fluid's parameters are only read, not written."""
    raise UsageError(f"{path}: Fluid's parameters are only read, not written. Paddle 2 and 3 read .pdparams: use {Flag('to', 'paddle')}")


def read(path: Path, options: Options) -> Checkpoint:
    """Return every layer whose fc is known. Raises UnreadableError for a damaged file or a folder without such layers."""
    program, combined = paddle_program.program_in(path), _combined(path)
    model = paddle_program.read(program) if program is not None else None
    if program is not None and model is not None and combined is not None:
        stored = Stored(lod_tensor.read_all(companion(program, combined.name), model.parameters))
    else:
        stored = lod_tensor.read_folder(path)
    layers: dict[str, Recurrent] = {}
    used: set[str] = set()
    uses: dict[str, list[paddle_program.LayerStatement]] = {}
    evidence, unread = [], []
    matches = [match for match in map(_LAYER.fullmatch, stored.arrays) if match]
    if not matches:
        raise UnreadableError(path, "it has no parameters named as those of dynamic_gru or dynamic_lstm (gru_0.w_0)")
    stated = paddle_program.stated(model) if model is not None else {}
    for match in matches:
        name, kind = match["name"], match["kind"]
        statement = _FluidProgram(name, program, stated.get(f"{name}.w_0", []), options)
        try:
            fc = _fc(name, kind, stored.arrays, statement, options)
            layers[name], homes = _layer(name, kind, fc, stored.arrays, statement)
            uses[name] = [use for use in stated.get(f"{name}.w_0", []) if use.fc == fc]
        except NotALayerError as error:
            unread.append(LayerNote(name, str(error), UNREAD))
            continue
        leftovers = {
            full: array.shape
            for full, array in stored.arrays.items()
            if full.startswith((f"{name}.", f"{fc}.")) and not any(full.startswith(home) for home in homes)  # with what an optimiser keeps
        }
        options.facts(name, "its parameters", leftovers)
        used |= homes
        evidence.append(f"{name}: parameters named as those of dynamic_{kind}, after {fc}")
        if statement.operator is not None and program is not None:
            evidence.append(f"{name}: {program.name} states what its operator computes")
    if model is not None:
        layers = {name: layers[name].replace(calls=received) for name, received in _calls(model, layers, uses).items()}
    layer_names = {match["name"] for match in matches}
    for other in sorted({part["name"] for part in map(_PART.fullmatch, stored.arrays) if part} - layer_names):
        unread.append(LayerNote(other, f"its matrix {other}.w_0 is missing", UNREAD))
    others = {name: array for name, array in stored.arrays.items() if name not in used}
    return Checkpoint(str(path), NAME, layers, others, tuple(evidence), options.questions, tuple(unread), unread=tuple(unread))


_HARMLESS = frozenset({"op_role", "op_namescope", "op_callstack", "op_device", "op_role_var", "is_test", "use_mkldnn", "use_seq"})
"""Attributes that every operator has, and those that decide how the same numbers are computed."""


def _calls(
    model: paddle_program.StatedProgram, layers: Mapping[str, Recurrent], uses: Mapping[str, Sequence[paddle_program.LayerStatement]]
) -> dict[str, tuple[Call, ...]]:
    """Return the calls of each layer in a program. A sequence has the steps of the whole batch, one behind the other."""
    placed = [FluidOperator(name, use.operator, layers[name], use.reads) for name, several in uses.items() for use in several]
    received_calls: dict[str, tuple[Call, ...]] = {}
    for operators in model.graphs:
        placed_ours = [placement for placement in placed if any(placement.operator is operator for operator in operators)]
        for name, received in calls(model, operators, placed_ours).items():
            received_calls[name] = (*received_calls.get(name, ()), *received)
    unseen = Call(Unknown("its program does not show it"))
    return {name: received_calls.get(name, (unseen,)) for name in layers}


class _FluidProgram:
    """The program's statements about a layer; the caller is asked for those that it lacks.

    operator  the layer's operator; None without a program, and if several operators state different things
    fc        the fc before it
    """

    def __init__(self, name: str, path: Path | None, uses: Sequence[paddle_program.LayerStatement], options: Options) -> None:
        self.name, self.options = name, options
        self.where = path.name if path is not None else ""
        agreed = bool(uses) and all((use.fc, use.operator.attributes) == (uses[0].fc, uses[0].operator.attributes) for use in uses)
        self.operator = uses[0].operator if agreed else None
        self.fc = uses[0].fc if agreed else ""
        if self.operator is not None:
            states = {word: names for word in ("H0", "C0") if (names := self.operator.inputs.get(word))}
            self._facts = options.facts(name, self.where, {**self.operator.attributes, **states}, harmless=_HARMLESS)

    def stated(self, attribute: str) -> str | None:
        """Return an attribute of the layer's operator as text, or None."""
        if self.operator is None or attribute not in self._facts:
            return None
        value = self._facts[attribute]
        return str(value).lower() if isinstance(value, bool) else str(value)

    def fact(self, option: str, attribute: str, assumed: str, choices: Sequence[str] = ()) -> str:
        """Return the value that the program states, or else the caller's decision."""
        value = self.stated(attribute)
        if value is not None:
            value = {"identity": "linear"}.get(value, value)
            return self.options.stated(option, self.name, value, self.where)
        why = f"parameters do not state the layer's {attribute}"
        return self.options.ask(option, self.name, assumed=assumed, why=why, choices=choices)


def _fc(name: str, kind: str, arrays: Mapping[str, Array], program: _FluidProgram, options: Options) -> str:
    """Return the fc before a layer. Raises NotALayerError where it is unknown."""
    if arrays[f"{name}.w_0"].ndim != 2:
        raise NotALayerError(f"{name}.w_0 has the shape {arrays[f'{name}.w_0'].shape}, expected a matrix")
    units = arrays[f"{name}.w_0"].shape[0]
    fitting = [
        full.removesuffix(".w_0")
        for full, array in arrays.items()
        if full.endswith(".w_0") and not _LAYER.fullmatch(full) and array.ndim == 2 and array.shape[1] == _GATES[kind] * units
    ]
    if program.fc in fitting:
        return options.stated("fc", name, program.fc, program.where)
    if program.operator is not None and options.peek("fc", name) is None:
        what = f"{program.fc!r}, whose width does not fit" if program.fc else "something other than an fc alone"
        raise NotALayerError(
            f"{program.where} gives it the output of {what}. Choose with {Setting('fc', 'NAME', layer=name)} if it is an fc anyway"
        )
    value = options.get("fc", name)
    if value is not None:
        if value not in fitting:
            there = f"the fitting ones are {', '.join(fitting) or 'none'}"
            raise NotALayerError(f"no {value!r} gives it {_GATES[kind] * units} values; {there}")
        return value
    if len(fitting) == 1:
        return fitting[0]
    alike = f"fc_{name.rpartition('_')[2]}"
    if alike not in fitting:
        raise NotALayerError(
            f"the fc before it is unknown ({', '.join(fitting) or 'none fits'}). Choose with {Setting('fc', 'NAME', layer=name)}"
        )
    why = "several fc are as wide as this layer needs; one has its number"
    return options.ask("fc", name, assumed=alike, why=why, choices=fitting)


def _layer(name: str, kind: str, fc: str, arrays: Mapping[str, Array], program: _FluidProgram) -> tuple[Recurrent, set[str]]:
    """Return a layer and the names of its arrays; what they leave open is asked. Raises NotALayerError."""
    homes = {"fc.w": f"{fc}.w_0", "fc.b": f"{fc}.b_0", f"{kind}.w": f"{name}.w_0", f"{kind}.b": f"{name}.b_0"}
    homes = {local: full for local, full in homes.items() if full in arrays}
    homes_arrays = {local: arrays[full] for local, full in homes.items()}
    odd = [full for full in homes.values() if not is_float(arrays[full])]
    if odd:
        raise NotALayerError(f"{odd[0]!r} is of type {arrays[odd[0]].dtype}, not of floating-point numbers")
    variant = "lstm"
    if kind == "gru":
        units = homes_arrays["gru.w"].shape[0]
        if homes_arrays["gru.w"].shape != (units, 3 * units):
            raise NotALayerError(f"{name}.w_0 has the shape {homes_arrays['gru.w'].shape}, expected {(units, 3 * units)}")
        # The operator reads the memory of the whole weight as two matrices.
        homes_arrays["gru.w"] = homes_arrays["gru.w"].reshape(-1)
        origin = program.fact("origin_mode", "origin_mode", "false")
        variant = "gru_origin" if origin == "true" else "gru"
    layout = registry.layout_named(f"{NAME}.{variant}")
    shapes = {local: tuple(array.shape) for local, array in homes_arrays.items()}
    sizes = fit(layout, shapes)
    if sizes is None:
        raise NotALayerError(f"its parameters do not fit together: {misfit([layout], shapes)}")
    peepholes = program.stated("use_peepholes")
    if peepholes is not None and (peepholes == "true") != ("peephole" in sizes.parts):
        has = "no peepholes" if peepholes == "true" else "peepholes"
        raise NotALayerError(f"{program.where} states use_peepholes={peepholes}, but its bias has {has}")
    backwards = program.fact("go_backwards", "is_reverse", "false")
    stack = assemble(name, _cell(layout, program), unpack(layout, sizes, homes_arrays), 1)
    return each(stack, lambda direction: direction.replace(reverse=backwards == "true")), set(homes.values())


_FUNCTIONS = ("sigmoid", "tanh", "relu", "linear")
"""The activations that Fluid has; it calls linear identity. Source: paddle 1.8 fluid/layers/rnn.py, dynamic_lstm."""


def _cell(layout: Layout, program: _FluidProgram) -> Cell:
    """Return the cell with the functions that the program states or the caller gives."""

    def function(key: str, default: Activation, attribute: str) -> Activation:
        return Activation(program.fact(key, attribute, str(default), _FUNCTIONS))

    candidate = "candidate_activation"
    if layout.kind == "gru" and program.operator is not None:
        candidate = "activation"  # the operator's own word for it
    cell = layout.cell.replace(
        activation=function("activation", layout.cell.activation, candidate),
        gate_activation=function("recurrent_activation", layout.cell.gate_activation, "gate_activation"),
    )
    if layout.kind == "lstm":
        cell = cell.replace(output_activation=function("output_activation", cell.output_activation, "cell_activation"))
    return cell
