"""C headers: gcc compiles and runs what is written, and the tables of RNNoise and CMSIS-NN give what their own C gives."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.containers import c_text
from rnnconvert.core import reference
from rnnconvert.core.arrays import Array
from rnnconvert.core.cells import HARD_SIGMOID_KERAS_2, RELU, Activation, Cell, Clip
from rnnconvert.core.errors import RefusedError, UnreadableError, UsageError
from rnnconvert.core.reference import Outputs
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.language.layout import Sizes
from rnnconvert.verification.running import identical
from tests.helpers import corpus
from tests.helpers.damage import endings
from tests.helpers.drawn import drawn, each
from tests.helpers.judging import WRONG, Problem, excess
from tests.helpers.requirements import need
from tests.helpers.stacks import BOTH, PLAIN, random_stack

INPUT = PLAIN | {"input_bias"}
FULL = INPUT | {"peephole", "projection"}
X = np.random.default_rng(1).uniform(-1, 1, (6, 2, 3)).astype(np.float32)
RNN, GRU, GRU_BEFORE, LSTM = Cell("rnn"), Cell("gru", True), Cell("gru", False), Cell("lstm")


def of(cell: Cell, parts: frozenset[str] = INPUT, layers: int = 1, dtype: Any = np.float32) -> Recurrent:
    parts = BOTH if cell.reset_after else parts
    return random_stack(Sizes(cell.kind, 3, 5, layers, 1, 2 * ("projection" in parts), parts), 5, dtype, cell)


def saved(path: Path, stack: Recurrent, **options: Any) -> Any:
    return rc.save(Checkpoint("memory", "", {"rnn": stack.replace(name="rnn")}), path, "c_header", **options)


@functools.cache
def gcc() -> str:
    return shutil.which("gcc") or shutil.which("cc") or ""


def ran(path: Path, names: list[str], x: Array = X, real: str = "float") -> Array:
    """What the functions of a header give, each reading what the one before gives, compiled as strict C99."""
    need("gcc", "" if gcc() else "no C compiler")
    steps, calls = "", "x"
    for name in names:
        steps += f"{real} y_{name}[{name.upper()}_OUTPUT]; {name}_step({calls}, &s_{name}, y_{name});"
        calls = f"y_{name}"
    states = "".join(f"{name}_state s_{name} = {{0}};" for name in names)
    last = names[-1]
    program = f"""#include "{path.name}"
#include <stdio.h>
int main(void) {{
    {real} x[{x.shape[2]}]; int t, b, i;
    for (b = 0; b < {x.shape[1]}; b++) {{
        {states}
        for (t = 0; t < {x.shape[0]}; t++) {{
            for (i = 0; i < {x.shape[2]}; i++) {{ double v; if (scanf("%lf", &v) != 1) return 1; x[i] = ({real})v; }}
            {steps}
            for (i = 0; i < {last.upper()}_OUTPUT; i++) printf("%.17g ", (double){calls}[i]);
        }}
    }}
    return 0;
}}
"""
    source = path.with_name("main.c")
    source.write_text(program)
    words = f"{gcc()} -std=c99 -Wall -Wextra -Werror -pedantic -o main main.c -lm".split()
    subprocess.run(words, cwd=path.parent, check=True, timeout=60)
    numbers = " ".join(map(repr, x.swapaxes(0, 1).reshape(-1).tolist()))
    done = subprocess.run(["./main"], cwd=path.parent, input=numbers, capture_output=True, text=True, check=True, timeout=60)
    return np.array(done.stdout.split(), np.float64).reshape(x.shape[1], x.shape[0], -1).swapaxes(0, 1)


def off(stack: Recurrent, y: Array, x: Array = X) -> float:
    problem = Problem(stack, x)
    return excess(problem, Outputs(y, problem.solved().hidden, problem.solved().cell))


_HARD = LSTM.replace(gate_activation=HARD_SIGMOID_KERAS_2, activation=Activation("softsign"), output_activation=RELU)
_ODD = GRU.replace(gate_activation=HARD_SIGMOID_KERAS_2, activation=Activation("linear"))
CASES: list[Recurrent] = [
    of(RNN), of(GRU), of(GRU_BEFORE), of(LSTM), of(LSTM, FULL), of(LSTM, layers=2), of(GRU, layers=2), of(LSTM, FULL, 1, np.float64),
    of(GRU, dtype=np.float64), of(GRU_BEFORE, dtype=np.float16), of(LSTM, FULL, 1, np.float16), of(_HARD), of(_ODD),
    of(RNN.replace(activation=RELU)),
    *(of(cell.replace(clips=(Clip("gates", -0.2, 0.1),))) for cell in (RNN, GRU, GRU_BEFORE)),
    of(LSTM.replace(clips=(Clip("gates", -0.2, 0.3), Clip("cell", -0.05, 0.1))), FULL),
    of(LSTM.replace(clips=(Clip("state", -0.05, 0.1), Clip("projection", -0.02, 0.03))), FULL),
    of(LSTM.replace(clips=(Clip("cell", -0.05, 0.05),)), dtype=np.float64),
]  # fmt: skip


def test_gcc_runs_what_is_written(tmp_path: Path) -> None:
    def check(stack: Recurrent) -> None:
        saved(tmp_path / "m.h", stack, force=True)
        read = rc.load(tmp_path / "m.h")
        names = list(read.layers)
        y = ran(tmp_path / "m.h", names, real="double" if stack.dtype == np.float64 else "float")
        if stack.dtype == np.float16:  # it computes in single precision, from biases that were added in half precision
            assert np.abs(y - reference.run(read.layers["rnn"], X).y).max() < 1e-6
        else:
            assert off(stack, y) <= 1
        assert [written.cell for written in read.layers.values()] == [layer.directions[0].cell for layer in stack.layers]
        assert not read.warnings and not read.questions
        layers = tuple(layer for written in read.layers.values() for layer in written.layers)
        assert np.abs(reference.run(stack.replace(layers=layers), X).y - reference.run(stack, X).y).max() < (
            1e-2 if stack.dtype == np.float16 else 1e-6
        )

    each(drawn(CASES, 3, "gcc"), check, str)


def test_a_wrong_gate_would_be_seen(tmp_path: Path) -> None:
    stack = of(LSTM)
    saved(tmp_path / "m.h", stack)
    first = stack.first
    swapped = first.with_arrays({("input", "o"): first.arrays["input", "i"], ("input", "i"): first.arrays["input", "o"]})
    wrong = stack.replace(layers=(type(stack.layers[0])((swapped,)),))
    assert off(wrong, ran(tmp_path / "m.h", ["rnn"])) > WRONG


def test_int8_says_what_it_loses(tmp_path: Path) -> None:
    stack = of(LSTM, FULL)
    summary = saved(tmp_path / "m.h", stack, storage="int8")
    loss = next(note for note in summary.notes if "int8" in note)
    (read,) = rc.load(tmp_path / "m.h").layers.values()
    most = max(float(np.abs(np.asarray(read.first.arrays[key]) - np.asarray(array)).max()) for key, array in stack.first.arrays.items())
    assert f"changes by up to {most:.3g}" in loss and 0.0005 < most < 0.005
    y = ran(tmp_path / "m.h", ["rnn"])
    assert off(read, y) <= 1 and np.abs(y - reference.run(stack, X).y).max() < 0.01
    assert (tmp_path / "m.h").stat().st_size < 6500


def test_two_directions_are_refused_unless_they_are_split(tmp_path: Path) -> None:
    stack = random_stack(Sizes("lstm", 3, 5, 1, 2, parts=INPUT), 5, np.float32)
    with pytest.raises(RefusedError, match="direction"):
        saved(tmp_path / "m.h", stack)
    assert not list(tmp_path.iterdir())


# Real tables ------------------------------------------------------------------------------------------------


def real(path: str) -> Path:
    need("corpus", corpus.absent())
    return corpus.FOLDER / path


def test_rnnoise_gives_what_its_own_c_gives() -> None:
    """Its C takes tables of tanh and sigmoid, which are off by about 1e-6."""
    checkpoint = rc.load(real("rnnoise-2018/rnn_data.c"))
    assert list(checkpoint.layers) == ["vad_gru", "noise_gru", "denoise_gru"] and not checkpoint.warnings
    with np.load(real("rnnoise-2018/rnn_data.ref.npz")) as recorded:
        for name, stack in checkpoint.layers.items():
            y = reference.run(stack, recorded[f"{name}__x"][:, None]).y[:, 0]
            assert np.abs(y - recorded[f"{name}__y"]).max() < 5e-6 and np.abs(y).max() > 0.5
            assert stack.cell == Cell("gru", False, activation=RELU)


def rnnoise_text(path: Path, source: Path) -> Path:
    """Write tables of rnn_data.c as rnnoise-nu's dump_rnn.py does: numbers with spaces between them, layer after layer."""
    tables = c_text.read(source)
    lines = ["rnnoise-nu model file version 1"]
    for name in ("input_dense", "vad_gru", "noise_gru", "denoise_gru", "denoise_output", "vad_output"):
        _, words = tables.words[name]
        *arrays, width, units, function = words
        lines.append(f"{width} {units} {('TANH', 'SIGMOID', 'RELU').index(function.removeprefix('ACTIVATION_'))}")
        bias, *matrices = arrays
        lines += [" ".join(str(int(number)) for number in tables.arrays[table]) for table in (*matrices, bias)]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_rnnoise_as_text_is_what_it_is_in_c(tmp_path: Path) -> None:
    source = real("rnnoise-2018/rnn_data.c")
    text = rc.load(rnnoise_text(tmp_path / "std.rnnn", source))
    for name, stack in rc.load(source).layers.items():
        assert identical(text.layers[name], stack)
    assert "input_dense_weights" in text.tensors


def test_damaged_text_of_rnnoise_is_unreadable_or_read(tmp_path: Path) -> None:
    path = rnnoise_text(tmp_path / "a.rnnn", real("rnnoise-2018/rnn_data.c"))
    assert endings(path, count=40, letters=b"0123456789 -.x\n") == {"read", "unreadable"}
    path.write_text("rnnoise-nu model file version 1\n42 24 0\n1 2 3\n")
    with pytest.raises(UnreadableError, match="ends inside the weights of 'input_dense'"):
        rc.load(path)


def test_tables_without_code_are_verified_layer_by_layer(tmp_path: Path) -> None:
    source = real("rnnoise-2018/rnn_data.c")
    rc.convert(source, tmp_path / "a.keras")
    report = rc.verify(source, tmp_path / "a.keras", on=["c-cc"])
    assert "IsADirectoryError" not in str(report) and "holds layers and no whole model" not in str(report)


@pytest.mark.parametrize("name", ["lstm_1", "lstm_2", "lstm_one_time_step"])
def test_cmsis_nn_gives_what_its_unit_tests_expect(name: str) -> None:
    """With the kernel's own rounding around the layer that is read, each integer of the output is met, or missed by one."""
    path = real(f"cmsis-nn-lstm/{name}/test_data.h")
    checkpoint = rc.load(path)
    (stack,) = checkpoint.layers.values()
    assert [question.option for question in checkpoint.questions] == ["input_scale"] and "integers" in checkpoint.warnings[0]
    defined = {key.removeprefix(f"{name.upper()}_"): value for key, value in c_text.read(path).defined.items()}
    number = {key: int(value) for key, value in defined.items() if re.fullmatch(r"-?\d+", value)}
    x, expected = (np.asarray(checkpoint.tensors[f"{name}_{what}"]) for what in ("input_tensor", "output"))
    steps, batch = number["TIME_STEPS"], number["BATCH_SIZE"]
    x, expected = x.reshape(-1, stack.input_size), expected.reshape(-1, stack.hidden_size)
    shape = (steps, batch, -1) if defined["TIME_MAJOR"] == "true" else (batch, steps, -1)
    x, expected = ((values.reshape(shape) if shape[0] == steps else values.reshape(shape).swapaxes(0, 1)) for values in (x, expected))
    step = 2.0**-30 / (number["OUTPUT_MULTIPLIER"] / 2**31 * 2.0 ** number["OUTPUT_SHIFT"])
    zero, (clip,) = number["OUTPUT_ZERO_POINT"], stack.cell.clips
    hidden, cell = np.zeros((batch, stack.hidden_size)), np.zeros((batch, stack.hidden_size))
    for x_t, wanted in zip(x + number["INPUT_ZERO_POINT"], expected, strict=True):
        sums = {}
        for letter, gate in stack.first.gates.items():
            assert gate.input is not None and gate.input_bias is not None
            sums[letter] = np.round((x_t @ gate.input.T + gate.input_bias + hidden @ gate.recurrent.T) * 4096) / 4096
        i, f, o = (1 / (1 + np.exp(-sums[letter])) for letter in "ifo")
        cell = np.clip(f * cell + i * np.tanh(sums["g"]), clip.low, clip.high)
        codes = np.clip(np.round(o * np.tanh(cell) / step) + zero, -128, 127)
        hidden = (codes - zero) * step
        assert np.abs(codes - wanted).max() <= 1
    assert np.ptp(expected) > 20


def test_the_scale_of_an_input_divides_its_weights() -> None:
    path = real("cmsis-nn-lstm/lstm_1/test_data.h")
    plain, scaled = (rc.load(path, settings=settings).layers["lstm_1"].first.arrays for settings in ([], ["input_scale=0.25"]))
    assert np.array_equal(np.asarray(scaled["input", "f"]), 4 * np.asarray(plain["input", "f"]))
    assert np.array_equal(np.asarray(scaled["recurrent", "f"]), np.asarray(plain["recurrent", "f"]))


@pytest.mark.parametrize("value", ["0", "-1", "none"])
def test_a_scale_that_divides_nothing_is_an_error(value: str) -> None:
    with pytest.raises(UsageError, match="above 0"):
        rc.load(real("cmsis-nn-lstm/lstm_1/test_data.h"), input_scale=value)


def test_a_cell_with_a_factor_is_named() -> None:
    """The int16 case keeps its cell in steps that are no power of two, and takes tanh of it as if they were."""
    checkpoint = rc.load(real("cmsis-nn-lstm/lstm_1_s16/test_data.h"))
    assert not checkpoint.layers and "1.115 i g" in checkpoint.unread[0]


# Changed and damaged files ----------------------------------------------------------------------------------

_C = """typedef signed char rnn_weight;
static const rnn_weight a_w[6] = { 1, -2, 3, /* four, five */ 4, 5, 6, };
static const rnn_weight a_r[3] = {7, 8, 9}; // {1, 2}
static const rnn_weight a_b[3] = {256, 0, -256};
static const GRULayer a = { a_b, a_w, a_r, 2, 1, ACTIVATION_TANH };
"""


def test_comments_are_no_numbers(tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text(_C)
    (stack,) = rc.load(tmp_path / "a.c").layers.values()
    assert [float(np.asarray(stack.first.arrays["input_bias", gate])[0]) for gate in "zrn"] == [1, 0, -1]
    assert np.array_equal(np.asarray(stack.first.arrays["input", "z"]) * 256, [[1, 4]])


def test_rnnoise_sizes_that_python_3_wrote_as_fractions_are_read(tmp_path: Path) -> None:
    """training/dump_rnn.py divides the width of a matrix by 3: Python 3 writes 24.0, which C converts to 24."""
    (tmp_path / "a.c").write_text(_C)
    (tmp_path / "b.c").write_text(_C.replace("2, 1, ACTIVATION_TANH", "2, 1.0, ACTIVATION_TANH"))
    first, second = (rc.load(tmp_path / name).layers["a"] for name in ("a.c", "b.c"))
    assert all(np.array_equal(np.asarray(first.first.arrays[key]), np.asarray(second.first.arrays[key])) for key in first.first.arrays)


@pytest.mark.parametrize(
    ("old", "new"),
    [("2, 1, ACTIVATION_TANH", "2, 1.5, ACTIVATION_TANH"), ("7, 8, 9", "7, 8"),
     ("7, 8, 9", "7, 8, x"), ("7, 8, 9", "7, 8, 0x9"), ("2, 1, ACTIVATION_TANH", "2, 1, ACTIVATION_ELU"),
     ("2, 1, ACTIVATION_TANH", "3, 1, ACTIVATION_TANH"), ("2, 1, ACTIVATION_TANH", "SIZE, 1, ACTIVATION_TANH"), ("{ a_b,", "{ b_b,"),
     ("2, 1, ACTIVATION_TANH", "2, 1"), ("7, 8, 9", ""), ("7, 8, 9", "7 8 9"), ("7, 8, 9", "7, 8, 9e")],
)  # fmt: skip
def test_tables_that_do_not_fit_are_unreadable(old: str, new: str, tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text(_C.replace(old, new, 1))
    with pytest.raises(UnreadableError):
        rc.load(tmp_path / "a.c")


@pytest.mark.parametrize(
    ("old", "new"),
    [('"prefix": "rnn"', '"prefix": "other"'), ('"layout": "c_header.gru"', '"layout": "c_header.lstm"'), ('"gru"', '"gru"]'),
     ('"activation": ["tanh", null, null]', '"activation": ["tahn", null, null]'), ('"W": [15, 3]', '"W": [3, 15]'),
     ('"W": [15, 3]', '"W": [15, 4]'), ('"dtype": "float32"', '"dtype": "int32"'), ("rnn_R[75]", "rnn_Q[75]"),
     ('"storage": "float32"', '"storage": "int8"'), ('[{"', '{"')],
)  # fmt: skip
def test_a_description_that_does_not_fit_is_unreadable(old: str, new: str, tmp_path: Path) -> None:
    saved(tmp_path / "m.h", of(GRU))
    text = (tmp_path / "m.h").read_text()
    if old not in text:
        old, new = '"prefix"', '"prefex"'
    (tmp_path / "m.h").write_text(text.replace(old, new, 1))
    with pytest.raises(UnreadableError):
        rc.load(tmp_path / "m.h")


@pytest.mark.parametrize("clip", ['["gates", 1, -1]', '["gate", -1, 1]', '["cell", -1, 1]', '["gates", -1]', '["gates", "-1", "1"]'])
def test_a_clip_that_no_cell_has_is_unreadable(clip: str, tmp_path: Path) -> None:
    saved(tmp_path / "m.h", of(GRU.replace(clips=(Clip("gates", -0.5, 0.5),))))
    text = (tmp_path / "m.h").read_text()
    assert '["gates", -0.5, 0.5]' in text
    (tmp_path / "m.h").write_text(text.replace('["gates", -0.5, 0.5]', clip))
    with pytest.raises(UnreadableError, match="which is not a kind with its two bounds"):
        rc.load(tmp_path / "m.h")


@pytest.mark.parametrize("function", ['["elu", 1.0, null]', '["leaky_relu", 0.1, null]', '["softplus", null, null]'])
def test_a_function_that_no_header_has_is_unreadable(function: str, tmp_path: Path) -> None:
    saved(tmp_path / "m.h", of(GRU))
    text = (tmp_path / "m.h").read_text()
    old = '"activation": ["tanh", null, null]'
    assert old in text
    (tmp_path / "m.h").write_text(text.replace(old, f'"activation": {function}'))
    with pytest.raises(UnreadableError, match="which is not a function"):
        rc.load(tmp_path / "m.h")


@pytest.mark.parametrize("code", ["300", "-129", "128", "1.5"])
def test_a_number_that_no_int8_holds_is_unreadable(code: str, tmp_path: Path) -> None:
    """C would compute with another number than the one that is read."""
    saved(tmp_path / "m.h", of(GRU), storage="int8")
    text = (tmp_path / "m.h").read_text()
    changed = re.sub(r"(int8_t rnn_R\[75\] = \{\s+)-?\d+", rf"\g<1>{code}", text)
    assert changed != text
    (tmp_path / "m.h").write_text(changed)
    with pytest.raises(UnreadableError, match="'rnn_R' does not hold integers of 8 bits"):
        rc.load(tmp_path / "m.h")


@pytest.mark.parametrize("same", ["name", "prefix"])
def test_two_layers_of_one_name_are_unreadable(same: str, tmp_path: Path) -> None:
    """Their macros would have one name, too: code that writes the outputs of one into the memory of the other."""
    layers = {"q": of(RNN).replace(name="q"), "bb": of(GRU).replace(name="bb")}
    rc.save(Checkpoint("memory", "", layers), tmp_path / "m.h", "c_header")
    text = (tmp_path / "m.h").read_text()
    if same == "name":
        text = text.replace('"name": "bb"', '"name": "q"')
    else:
        text = text.replace('"prefix": "bb"', '"prefix": "Q"').replace("bb_", "Q_").replace("BB_", "Q_").replace("bb:", "Q:")
    (tmp_path / "m.h").write_text(text)
    with pytest.raises(UnreadableError, match=f"gives two layers the {same}"):
        rc.load(tmp_path / "m.h")


def test_a_fact_that_is_unknown_refuses_a_conversion(tmp_path: Path) -> None:
    saved(tmp_path / "m.h", of(GRU))
    text = (tmp_path / "m.h").read_text()
    (tmp_path / "m.h").write_text(text.replace('"prefix"', '"mystery": 1, "prefix"', 1))
    with pytest.raises(RefusedError, match="mystery"):
        rc.convert(tmp_path / "m.h", tmp_path / "a.onnx")


def test_includes_go_no_further_than_the_folder(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "b.h").write_text("static const int b[1] = {1};")
    (tmp_path / "out" / "a.h").write_text(
        '#include "../b.h"\n#include "a.h"\n#include "missing.h"\n#include </etc/passwd>\nstatic const int a[1] = {1};'
    )
    source = c_text.read(tmp_path / "out" / "a.h")
    assert list(source.arrays) == ["a"] and len(source.files) == 1


def test_a_damaged_file_ends_in_an_error_of_ours(tmp_path: Path) -> None:
    saved(tmp_path / "m.h", of(LSTM), storage="int8")
    ends = endings(tmp_path / "m.h", letters=b'0123456789{}[]"/*-,ef\x00\xff')
    assert ends == {"read", "unreadable"}


@pytest.mark.parametrize(
    "form",
    [
        "const float {name}[{rows}][{columns}] = {{{rows_in_braces}}};",
        "static const std::vector<std::vector<float>> {name} = {{{rows_in_braces}}};",
        "std::vector<std::vector<double>> {name}{{{rows_in_braces}}};",
        "const std::array<std::array<float, {columns}>, {rows}> {name} = {{{rows_in_braces}}};",
    ],
)
def test_tables_of_a_program_of_ones_own_are_listed_with_a_draft(form: str, tmp_path: Path) -> None:
    """Their names and shapes are those of a layer, but not their gates: the error shows the layout that describes them."""
    draw = np.random.default_rng(2)
    arrays = {"lstm_kernel": draw.normal(size=(3, 16)), "lstm_recurrent_kernel": draw.normal(size=(4, 16))}
    lines = ["#include <vector>", "namespace model {", f"const float lstm_bias[16] = {{{', '.join(['0.5f'] * 16)}}};"]
    for name, array in arrays.items():
        rows = ", ".join("{" + ", ".join(f"{value:.9g}f" for value in row) + "}" for row in array)
        lines.append(form.format(name=name, rows=len(array), columns=array.shape[1], rows_in_braces=rows))
    (path := tmp_path / "model.h").write_text("\n".join([*lines, "}"]))
    checkpoint = rc.load(path)
    assert checkpoint.tensors["lstm_bias"].shape == (16,)
    for name, array in arrays.items():
        np.testing.assert_allclose(checkpoint.tensors[name], array, rtol=1e-6)
    with pytest.raises(rc.UnreadableError, match="no recurrent layer in it could be read") as error:
        rc.convert(path, tmp_path / "out.pt")
    assert '{ name = "lstm_kernel", parts = "input", axes = "in (gate hidden)" }' in str(error.value)


@pytest.mark.parametrize("text", ["float a[2] = {{1, 2}, {3}};", "vector<float> a = {b, 2};", "int a[1] = " + "{" * 50 + "1"])
def test_braces_that_hold_no_array_are_passed_over(text: str, tmp_path: Path) -> None:
    (path := tmp_path / "model.h").write_text(f"{text}\nconst std::vector<float> w{{1.5f, -2}};\n")
    assert {name: array.tolist() for name, array in rc.load(path).tensors.items()} == {"w": [1.5, -2.0]}
