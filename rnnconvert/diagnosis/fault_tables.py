"""The wrong conventions, as rows of data."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from rnnconvert.core.cells import GATES, RELU, TANH
from rnnconvert.core.weights import BIAS_PARTS
from rnnconvert.diagnosis import fault_runs as runs
from rnnconvert.diagnosis import fault_stacks
from rnnconvert.diagnosis import fault_weights as weights
from rnnconvert.diagnosis.fault_runs import Run
from rnnconvert.diagnosis.fault_stacks import StackChange
from rnnconvert.diagnosis.fault_weights import Change
from rnnconvert.identification.conventions import CANDIDATES, GATE_FUNCTIONS, SIGNED

Row = tuple[str, str, str, Change]


_NAMES = {"lstm": "an LSTM", "gru": "a GRU"}


_ORDERS = ("ifgo", "iofg", "igfo", "ifog", "figo")
"""The orders of stored gates: PyTorch, Keras and cuDNN; ONNX; TensorFlow 1; MIOpen and SeqLSTM; Torch7. GRUs are r z n or z r n."""


def _swapped(parts: tuple[str, ...], name: str, needs: str) -> Iterator[Row]:
    for kind, what in _NAMES.items():
        for gate, other in itertools.combinations(GATES[kind], 2):
            gates, change = f"{name}gates {gate} and {other}", weights.permuted(kind, {gate: other, other: gate}, parts)
            yield f"{gates} swapped", f"{'the ' if name else ''}{gates} are swapped", what + needs, change


def _orders_misread() -> Iterator[tuple[str, dict[str, str]]]:
    """Yield orders read as one another, where more than two gates are exchanged, and which gate each receives."""
    seen: set[tuple[tuple[str, str], ...]] = set()
    for read, stored in itertools.permutations(_ORDERS, 2):
        sources = {gate: source for gate, source in zip(read, stored, strict=True) if gate != source}
        key = tuple(sorted(sources.items()))
        if len(sources) > 2 and key not in seen:
            seen.add(key)
            yield f"gates stored {' '.join(stored)} read as {' '.join(read)}", sources


def _misread() -> Iterator[Row]:
    for sentence, sources in _orders_misread():
        yield sentence, sentence, "an LSTM", weights.permuted("lstm", sources, weights.BLOCKS)


_AFTER = "a GRU with the reset gate after the product and a bias"


_CLIPPED: dict[weights.ClipKind, str] = {
    "gates": "the gates' pre-activations",
    "cell": "the cell state",
    "state": "the cell state where it is read",
    "projection": "the projected state",
}


DIRECTION_ROWS: tuple[Row, ...] = (
    ("peepholes dropped", "the peepholes are dropped", "peepholes", weights.without(("peephole",))),
    *((f"clip of the {kind} dropped", f"the clip of {words} is dropped", f"a clip of {words}", weights.no_clip(kind))
      for kind, words in _CLIPPED.items()),
    ("coupled gates dropped", "the coupling of gates i and f is dropped (input_forget)", "coupled gates",
     weights.cell(lambda cell: cell.replace(coupled=""))),
    ("coupled the other way", "the coupling is the other way round, f = 1 - i for i = 1 - f or the reverse", "coupled gates",
     weights.cell(lambda cell: cell.replace(coupled="i" if cell.coupled == "f" else "f") if cell.coupled else None)),
    *_swapped(weights.BLOCKS, "", ""),
    *_misread(),
    ("gate z negated", "the update gate z has the opposite sign, h' = (1 - z) h + z n", "a GRU", weights.negated(SIGNED["gru"])),
    ("reset gate before the product", "the reset gate multiplies the state, R (r * h), before the product",
     "a GRU with the reset gate after the product", weights.reset(False)),
    ("reset gate after the product", "the reset gate multiplies the product, r * (R h), after it",
     "a GRU with the reset gate before the product", weights.reset(True)),
    ("candidate's recurrent bias outside the reset product",
     "the candidate's recurrent bias is outside the reset product, r * (R h) + b", f"{_AFTER} of its own",
     weights.moved_candidate_bias("recurrent_bias", "input_bias")),
    ("candidate's input bias inside the reset product",
     "the candidate's input bias is inside the reset product, r * (R h + b)", _AFTER,
     weights.moved_candidate_bias("input_bias", "recurrent_bias")),
    ("activation functions ignored", "all functions are the usual ones, sigmoid and tanh",
     "several functions that are not the usual ones", weights.usual_functions),
    *((f"gates through {name}", f"the gates go through {name}" + (f", {function}" if function.alpha else ""),
       "gates through another sigmoid or hard_sigmoid", weights.gate_function(function))
      for name, function in GATE_FUNCTIONS.items()),
    ("candidate through tanh", "the candidate goes through tanh", "a function other than tanh",
     weights.candidate(TANH, ("rnn", "gru", "lstm"))),
    ("candidate through relu", "the candidate goes through relu", "a plain RNN, with a function other than relu",
     weights.candidate(RELU, ("rnn",))),
    ("output through the candidate's function", "the output goes through the candidate's function",
     "an LSTM whose output has a function of its own",
     weights.cell(lambda cell: cell.replace(output_activation=cell.activation) if cell.kind == "lstm" else None)),
    ("forget_bias missing", "gate f lacks a forget_bias (that of the layer, or 1)", "an LSTM with a gate f of its own",
     weights.forget(-1)),
    ("forget_bias added twice", "gate f has one forget_bias too many (that of the layer, or 1)", "an LSTM with a gate f of its own",
     weights.forget(1)),
    ("clip of the gates put on the cell", "the clip is put on the cell state instead of the gates",
     "a clip of the gates of an LSTM", weights.clip_moved("gates", "cell")),
    ("clip of the cell put on the gates", "the clip is put on the gates instead of the cell state",
     "a clip of the cell state", weights.clip_moved("cell", "gates")),
    ("clip of the cell put where it is read", "the cell state is clipped where it is read, and the final one not at all",
     "a clip of the cell state", weights.clip_moved("cell", "state")),
    ("clip of the state put on the cell", "the new cell state is clipped, and so the final one, but not the initial one",
     "a clip of the cell state where it is read", weights.clip_moved("state", "cell")),
    ("clip of the gates added", "the gates' pre-activations are clipped to [-3, 3]", "gates without a clip",
     weights.clip_added("gates", ("rnn", "gru", "lstm"))),
    ("clip of the cell added", "the cell state is clipped to [-3, 3], as some cells do unasked",
     "an LSTM without a clip of its cell state", weights.clip_added("cell", ("lstm",))),
    ("coupled gates added", "gates i and f are coupled (input_forget)", "an LSTM with two gates of their own",
     weights.cell(lambda cell: cell.replace(coupled="f") if cell.kind == "lstm" and not cell.coupled else None)),
    ("activations' constants dropped", "each activation has its usual constants", "activations with other constants",
     weights.usual_constants),
    *((f"peepholes of {gate} and {other} swapped", f"the peepholes of gates {gate} and {other} are swapped", "peepholes",
       weights.permuted("lstm", {gate: other, other: gate}, ("peephole",)))
      for gate, other in itertools.combinations("ifo", 2)),
    ("input bias dropped", "the input bias is dropped", "two biases", weights.one_of_two("input_bias")),
    ("recurrent bias dropped", "the recurrent bias is dropped", "two biases", weights.one_of_two("recurrent_bias")),
    ("biases dropped", "the biases are dropped", "biases", weights.without(BIAS_PARTS)),
    ("candidate's recurrent bias dropped", "the candidate's recurrent bias is dropped", f"{_AFTER} of its own",
     lambda d: weights.without(("recurrent_bias",), "n")(d) if d.cell.kind == "gru" else None),
    ("biases swapped", "the input bias and the recurrent bias are exchanged",
     "two biases of a GRU with the reset gate after the product", weights.biases_swapped),
    ("biases added twice", "the biases are added twice", "biases", weights.biases_twice),
    *_swapped(BIAS_PARTS, "biases of ", " with biases"),
    *((f"{words} transposed", f"the {words} is transposed", f"a square {words}", weights.transposed(part))
      for part, words in (("recurrent", "recurrent matrix"), ("input", "input matrix"), ("projection", "projection"))),
    ("projection ignored", "the projection is ignored", "a square projection", weights.no_projection),
    ("learned initial state dropped", "the learned initial state is dropped", "a learned initial state",
     weights.without(("initial_hidden", "initial_cell"))),
    ("backward direction not reversed", "the direction that reads from the end reads from the start", "a backward direction",
     fault_stacks.forward),
    ("forward direction reversed", "the direction that reads from the start reads from the end", "a forward direction", weights.backward),
)  # fmt: skip


STACK_ROWS: tuple[tuple[str, str, str, StackChange], ...] = (
    ("directions swapped", "the two directions' weights are exchanged", "two directions", fault_stacks.directions_swapped),
    (
        "halves of the input of every upper layer exchanged",
        "the halves of the input of every layer above the first are exchanged (backward, then forward)",
        "two directions side by side in several layers",
        fault_stacks.input_halves_above,
    ),
    ("layers in reverse order", "the order of the layers is reversed", "two layers of equal sizes", fault_stacks.layers_reversed),
    ("directions joined by sum", "the directions are added", "directions averaged or multiplied", fault_stacks.merged_as("sum")),
    ("directions joined by ave", "the directions are averaged", "directions added or multiplied", fault_stacks.merged_as("ave")),
    ("directions joined by mul", "the directions are multiplied", "directions added or averaged", fault_stacks.merged_as("mul")),
)


_LENGTHS = "sequences of different lengths"


RUN_ROWS: tuple[tuple[str, str, str, Run], ...] = (
    ("output peephole sees the old cell state", "the output's peephole sees the cell state from before the step",
     "peepholes", runs.old_cell),
    ("clip on the way to the output, too",
     "the clip also bounds the cell state on its way to the output function, the other reading of what such a clip is",
     "a clip of the gates of an LSTM", runs.clip_output),
    ("backward outputs in processing order", "backward outputs are left in processing order", "two directions",
     runs.backward_in_processing_order),
    ("backward direction reads the padding", "the direction that reads from the end begins in the padding",
     f"a backward direction and {_LENGTHS}", runs.padding_read_backwards),
    ("halves of the output exchanged", "the output is backward, then forward", "two directions side by side",
     runs.output_halves_exchanged),
    ("halves of every layer exchanged", "directions are joined backward first in every layer",
     "two directions of equal sizes side by side in several layers", runs.halves_exchanged),
    ("outputs in the other order", "outputs are in processing order instead of time order, or the reverse",
     "one direction that reads from the end", runs.outputs_reversed),
    ("lengths ignored", "the lengths are ignored", _LENGTHS, runs.lengths_ignored),
    ("padded steps repeat the last output", "the last output is repeated past the end of a sequence", _LENGTHS,
     runs.padded_steps_repeat),
    ("padded steps computed", "outputs go on past the end of a sequence", f"{_LENGTHS}, read forward",
     runs.padded_steps_computed),
    ("final states at the padded end", "final states are those at the end of the padding", _LENGTHS,
     runs.final_states_at_the_end),
    ("initial states ignored", "the initial states are ignored", "initial states", runs.initial_states_ignored),
    ("initial states of ones", "the default initial state is ones", "no initial states, given or learned",
     runs.initial_states_of_ones),
    ("initial cell state ignored", "the initial cell state is ignored", "initial cell states", runs.cell_state_ignored),
    ("h_0 and c_0 swapped", "h_0 and c_0 are exchanged", "initial states of an LSTM without projection",
     runs.states_exchanged),
    ("initial states by direction", "initial states are taken direction by direction, not layer by layer",
     "initial states of several layers of two directions", runs.initial_states_by_direction),
    ("final states by direction", "final states are given direction by direction, not layer by layer",
     "several layers of two directions", runs.final_states_by_direction),
    ("final states are the initial ones", "the final states are the initial ones", "initial states",
     runs.final_states_are_initial),
    ("backward final state at the last step", "the backward final state is the output at the last time step",
     "two directions side by side", runs.backward_final_state_at_the_end),
    ("state not carried over", "the state is not carried from one part of the sequence to the next",
     "a sequence fed in parts", runs.state_not_carried),
    ("batch and time exchanged", "batch and time are exchanged (layout=1 read as layout=0)",
     "no initial states and lengths, or as many steps as sequences", runs.batch_and_time_exchanged),
)  # fmt: skip


_MATRICES = (("input", "input matrix"), ("recurrent", "recurrent matrix"))


_VECTORS = (("input_bias", "input bias"), ("recurrent_bias", "recurrent bias"))


def _of_one_array() -> Iterator[Row]:
    """Yield the faults of one matrix, one bias or one gate of it."""
    for part, words in (*_MATRICES, *_VECTORS):
        for kind, what in _NAMES.items():
            for swapped, other in itertools.combinations(GATES[kind], 2):
                change = weights.permuted(kind, {swapped: other, other: swapped}, (part,))
                yield (
                    f"gates {swapped} and {other} of the {words} swapped",
                    f"gates {swapped} and {other} of the {words} are swapped",
                    what,
                    change,
                )
    for misreading, sources in _orders_misread():
        for part, words in (*_MATRICES, *_VECTORS):
            sentence = f"{misreading} in the {words}"
            yield sentence, sentence, "an LSTM", weights.permuted("lstm", sources, (part,))
    for part, words in _MATRICES:
        for gate in dict.fromkeys(gate for gates in GATES.values() for gate in gates):
            yield (
                f"gate {gate} of the {words} transposed",
                f"gate {gate} of the {words} is transposed",
                f"a square {words}",
                weights.transposed(part, gate),
            )


def _functions() -> Iterator[Row]:
    """Yield the functions that `identify` searches among and that the lists above lack."""
    for name, function in CANDIDATES.items():
        if function not in (RELU, TANH):
            yield (
                f"candidate through {name}",
                f"the candidate goes through {function}",
                "another function",
                weights.candidate(function, ("rnn", "gru", "lstm")),
            )
        if function == RELU:
            yield (
                "candidate of a gated cell through relu",
                "the candidate goes through relu",
                "a GRU or an LSTM",
                weights.candidate(function, ("gru", "lstm")),
            )
        if function != TANH:
            yield (
                f"candidate and output through {name}",
                f"the candidate and the output go through {function}",
                "an LSTM",
                weights.both(function),
            )


ARRAY_ROWS: tuple[Row, ...] = (
    *_of_one_array(),
    *_functions(),
    (
        "halves of the input exchanged",
        "the halves of the input are exchanged (backward, then forward)",
        "an even number of inputs",
        weights.input_halves,
    ),
)
