"""Whole models as C headers: compiled by the system's compiler, they give what their framework gives."""

from __future__ import annotations

import re
import subprocess
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner

from rnnconvert.cli.main import main
from rnnconvert.core.errors import RefusedError, UnreadableError, UsageError
from rnnconvert.files.load import load
from rnnconvert.formats.c_header import whole_run
from rnnconvert.formats.c_header.run import absent
from rnnconvert.models.runners import NotRunError
from rnnconvert.scaffolding.export import Exported, export_model
from rnnconvert.scaffolding.scaffold import scaffold
from tests import ROOT
from tests.formats.pytorch.test_loops_of_steps import RIGHT, scripted
from tests.helpers.drawn import each
from tests.helpers.random_models import fill, random_chain
from tests.helpers.requirements import need, needed
from tests.helpers.whole_models import randomise

pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Layer .* was passed an input with a mask:UserWarning"),
    pytest.mark.filterwarnings("ignore:You are using a softmax over axis:UserWarning"),
    pytest.mark.filterwarnings("ignore:The tensor attributes:UserWarning"),
    pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning"),
]
COMPILERS = (["gcc", "-std=c99"], ["g++"])


def in_c(header: Path, *inputs: Any) -> tuple[Any, ...]:
    """Return what the model of a header gives."""
    need("gcc", absent({}))
    return whole_run.open_file(header).ran([("", x) for x in inputs], ())[0].outputs


def strictly(header: Path, done: Exported | None = None) -> None:
    """Compile a header, and the lines that export prints, as C and as C++ without a warning."""
    head, *call = done.recipe if done else [f'#include "{header.name}"']
    lines = "\n".join([head, "int main(void) {", *call, "return 0;", "}", ""])
    for compiler in COMPILERS:
        source = header.parent / ("main.cc" if compiler == ["g++"] else "main.c")
        source.write_text(lines)
        command = [*compiler, "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-c", source.name, "-o", "main.o"]
        compiled = subprocess.run(command, cwd=header.parent, capture_output=True, text=True, check=False)
        assert not compiled.returncode, compiled.stderr[:2000]


def agree(outputs: Any, expected: Any, tolerance: float = 2e-5) -> None:
    expected = expected if isinstance(expected, (list, tuple)) else [expected]
    assert len(outputs) == len(expected)
    for output, truth in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(output, np.asarray(truth), rtol=tolerance, atol=tolerance)


def test_what_is_written_compiles_without_a_warning(tmp_path: Path) -> None:
    need("gcc", absent({}))
    for seed, settings in ((1, []), (2, ["storage=int8"]), (5, [])):
        random_chain(seed).save(tmp_path / "m.keras")
        dtype = "float16" if seed == 5 else None
        strictly(tmp_path / "m.h", export_model(tmp_path / "m.keras", tmp_path / "m.h", force=True, settings=settings, dtype=dtype))


def small(folder: Path, seed: int = 0) -> Any:
    """Save a model of two recurrent layers with a head, and return it."""
    keras = needed("keras", "keras")
    keras.utils.clear_session()
    layers = keras.layers
    built = keras.Sequential([
        keras.Input((None, 4)), layers.LSTM(8, return_sequences=True), layers.GRU(6), layers.Dense(3, activation="softmax")
    ])  # fmt: skip
    randomise(built, seed)
    built.save(folder / "m.keras")
    return built


@pytest.mark.parametrize(("dtype", "settings", "tolerance"), [("float16", [], 5e-3), (None, ["storage=int8"], 0.1), ("float64", [], 2e-5)])
def test_a_type_of_weights_changes_as_much_as_it_rounds(dtype: str | None, settings: list[str], tolerance: float, tmp_path: Path) -> None:
    built = small(tmp_path)
    done = export_model(tmp_path / "m.keras", tmp_path / "m.h", dtype=dtype, settings=settings)
    x = np.random.default_rng(1).normal(size=(2, 7, 4)).astype(np.float32)
    agree(in_c(tmp_path / "m.h", x), built(x), tolerance)
    assert any("in int8 a weight changes" in note for note in done.notes) == bool(settings)
    if settings:
        text = (tmp_path / "m.h").read_text()
        assert "a[j] += part[j] * m_lstm_W_scale[j];" in text, "the scale is outside of the loop"


def weighted(kind: str) -> Any:
    """A module of torch that weighs the steps of a recurrent layer, and sums them up."""
    torch = needed("torch", "torch")
    nn, vector = torch.nn, kind == "a vector"

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.score = nn.GRU(5, 6, batch_first=True), nn.Linear(6, 3 if kind == "heads" else 1)
            self.query, self.head = nn.Parameter(torch.randn(6)), nn.Linear(6, 2)

        def forward(self, x: Any) -> Any:
            y, h = self.rnn(x)
            if kind == "the last state":
                weights = torch.softmax(torch.bmm(y, h[-1].unsqueeze(2)).squeeze(2), 1)
                return self.head(torch.bmm(weights.unsqueeze(1), y).squeeze(1))
            if kind == "heads":
                return torch.log_softmax(self.head(torch.softmax(self.score(torch.tanh(y)), 1).transpose(1, 2) @ y), 1)
            scores = torch.matmul(torch.tanh(y), self.query).unsqueeze(-1) if vector else self.score(y)
            return self.head((torch.softmax(scores, 1) * y).sum(1)), scores.log_softmax(1)

    torch.manual_seed(0)
    return Attention().eval()


@pytest.mark.filterwarnings("ignore:Converting a tensor to a Python boolean")
@pytest.mark.parametrize("kind", ["a layer", "a vector", "the last state", "heads"])
def test_steps_are_weighed_by_one_another(kind: str, tmp_path: Path) -> None:
    torch, model = needed("torch", "torch"), weighted(kind)
    torch.jit.trace(model, torch.randn(2, 7, 5)).save(str(tmp_path / "model.pt"))
    strictly(tmp_path / "m.h", export_model(tmp_path / "model.pt", tmp_path / "m.h", axes=3))
    for batch, time in ((2, 7), (1, 1), (3, 12)):
        x = torch.randn(batch, time, 5)
        expected = model(x)
        expected = expected if isinstance(expected, tuple) else (expected,)
        agree(in_c(tmp_path / "m.h", x.numpy()), [output.detach().numpy() for output in expected])


def test_keras_steps_are_weighed_by_one_another(tmp_path: Path) -> None:
    keras = needed("keras", "keras")
    x = keras.Input((None, 4))
    y = keras.layers.Bidirectional(keras.layers.LSTM(5, return_sequences=True))(x)
    weights = keras.layers.Softmax(axis=1)(keras.layers.Dense(1, activation="tanh")(y))
    model = keras.Model(x, keras.layers.Dense(2)(keras.ops.sum(keras.layers.Multiply()([y, weights]), axis=1)))
    randomise(model, 3)
    model.save(tmp_path / "m.keras")
    assert export_model(tmp_path / "m.keras", tmp_path / "m.h", verify=True).equal


def looped(folder: Path) -> Path:
    """Write a model with a loop over the steps of its sequences as C."""
    scripted(folder, RIGHT["from the end"])
    export_model(folder / "model.pt", folder / "m.h")
    return folder / "m.h"


def test_a_loop_goes_on_from_the_state_of_the_step_before(tmp_path: Path) -> None:
    """Steps one by one, in runs of several, and all at once: the same numbers."""
    model = scripted(tmp_path, RIGHT["layer norm"])
    strictly(tmp_path / "m.h", export_model(tmp_path / "model.pt", tmp_path / "m.h"))
    assert "m_step: one time step" in (tmp_path / "m.h").read_text()
    (tmp_path / "steps.c").write_text(
        textwrap.dedent("""
        #include "m.h"
        #include <stdio.h>
        int main(void) {
            static m_state at; /* all zeros */
            float x[9 * M_X_SIZE], y[9 * M_Y_0_SIZE], c[M_Y_1_SIZE];
            int i;
            for (i = 0; i < 9 * M_X_SIZE; i++) x[i] = (float)(i % 7 - 3) / 4;
            m_step(x, &at, y, c);
            m_run(x + M_X_SIZE, 3, &at, y + M_Y_0_SIZE, c);
            m_run(x + 4 * M_X_SIZE, 5, &at, y + 4 * M_Y_0_SIZE, c);
            for (i = 0; i < 9 * M_Y_0_SIZE; i++) printf("%.9g ", y[i]);
            for (i = 0; i < M_Y_1_SIZE; i++) printf("%.9g ", c[i]);
            return 0;
        }
    """)
    )
    need("gcc", absent({}))
    subprocess.run(["gcc", "-std=c99", "steps.c", "-o", "steps", "-lm"], cwd=tmp_path, check=True)
    printed = np.array(subprocess.run(["./steps"], cwd=tmp_path, check=True, capture_output=True, text=True).stdout.split(), np.float32)
    x = (np.arange(45, dtype=np.float32) % 7 - 3).reshape(1, 9, 5) / 4
    y, c = (output.detach().numpy() for output in model(needed("torch", "torch").from_numpy(x)))
    np.testing.assert_allclose(printed, np.concatenate([y.ravel(), c.ravel()]), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ('["left", [', '["left", [0, ', "the state of a loop|what a step of a loop leaves"),
        ('["state", [', '["flip", [', "is damaged"),
        ('["function", [', '["flip", [', "is damaged"),
    ],
)
def test_a_description_of_a_loop_that_is_none_is_refused(before: str, after: str, why: str, tmp_path: Path) -> None:
    header = looped(tmp_path)
    text = header.read_text()
    assert before in text
    header.write_text(text.replace(before, after))
    with pytest.raises(UnreadableError, match=why):
        load(header)


@pytest.mark.parametrize("number", [0, 1], ids=["the input", "the output of an LSTM"])
def test_a_state_that_no_loop_has_is_refused(number: int, tmp_path: Path) -> None:
    small(tmp_path)
    export_model(tmp_path / "m.keras", header := tmp_path / "m.h")
    text = header.read_text()
    assert text.count('], "outputs": [{"axes"') == 1
    header.write_text(text.replace('], "outputs": [{"axes"', f', ["left", [{number}, {number}], "", {{}}]], "outputs": [{{"axes"'))
    with pytest.raises(UnreadableError, match="a state that no loop has"):
        load(header)


def test_int8_is_not_held_to_the_numbers_of_its_source(tmp_path: Path) -> None:
    small(tmp_path)
    done = export_model(tmp_path / "m.keras", tmp_path / "m.h", settings=["storage=int8"], verify=True)
    assert not done.equal and "equal but for: its matrices are rounded to int8" in str(done)


def test_a_header_of_a_whole_model_is_read_and_proved(tmp_path: Path) -> None:
    small(tmp_path)
    result = CliRunner().invoke(main, ["export", str(tmp_path / "m.keras"), str(tmp_path / "m.h"), "--verify"])
    assert result.exit_code == 0, result.output
    assert "equal: 4 runs" in result.output
    assert set(load(tmp_path / "m.h").layers) == {"lstm", "gru"}
    result = CliRunner().invoke(main, ["inspect", str(tmp_path / "m.h")])
    assert "the header is a whole model, m_run; beside its recurrent layers it computes: dense, softmax" in result.output
    result = CliRunner().invoke(main, ["verify", str(tmp_path / "m.keras"), str(tmp_path / "m.h")])
    assert result.exit_code == 0, result.output


def test_a_header_is_written_as_the_model_that_it_is(tmp_path: Path) -> None:
    """From a header come its own lines again, and a model that is proved against its code; from a changed one nothing does."""
    small(tmp_path)
    header, again = tmp_path / "m.h", tmp_path / "again" / "m.h"
    export_model(tmp_path / "m.keras", header)
    again.parent.mkdir()
    export_model(header, again)
    texts = [re.sub(r'"name": "\w+", "value"|gives y \(\w+\)', "", path.read_text()) for path in (header, again)]
    assert texts[0] == texts[1]
    assert export_model(header, tmp_path / "m.onnx", verify=True).equal
    text = header.read_text()
    lines = text.splitlines(keepends=True)
    number = re.search(r"static const float m_dense_b\[3\] = \{\n +(\S+),", text)
    assert number
    changes = {
        "its code": text.replace("y0[j] = sum;", "y0[j] = sum + 1;"),
        "a line more": text + "\nint more;\n",
        "cut": "".join(lines[: len(lines) * 3 // 4]),
        "its description": text.replace('"function": "softmax"', '"function": "tanh"').replace('"log": false', '"log": true'),
        "a number's digits": text[: number.start(1)] + "0x1p-1f" + text[number.end(1) :],
    }
    for what, changed in changes.items():
        assert changed != text, what
        again.write_text(changed)
        with pytest.raises(UnreadableError):
            export_model(again, tmp_path / "other.onnx")
        assert not (tmp_path / "other.onnx").exists(), what


@pytest.mark.parametrize("words", [["--dtype", "float16"], ["--dtype", "int8"], ["--dtype", "float64"]])
def test_a_header_of_other_numbers_is_written_with_a_note_or_refused(words: list[str], tmp_path: Path) -> None:
    small(tmp_path)
    calls = [["m.keras", "m.h", *words], ["m.h", "m.onnx", "--verify"]]
    first, second = (
        CliRunner().invoke(main, ["export", *(str(tmp_path / word) if "." in word else word for word in call)]) for call in calls
    )
    assert first.exit_code == 0, first.output
    if words[1] == "float64":
        assert second.exit_code == 4 and "a header in float64" in second.output
        return
    assert second.exit_code == 0 and "equal: " in second.output, second.output
    assert {"float16": "its weights are halves", "int8": "its matrices are int8"}[words[1]] in second.output


def test_a_unit_norm_of_another_epsilon_is_none_of_keras(tmp_path: Path) -> None:
    keras = needed("keras", "keras")
    start = keras.Input((5, 4))
    keras.Model(start, keras.layers.UnitNormalization()(keras.layers.GRU(3, return_sequences=True)(start))).save(tmp_path / "m.keras")
    export_model(tmp_path / "m.keras", tmp_path / "m.h")
    assert "UnitNormalization" in scaffold(tmp_path / "m.h", "keras").text
    other = tmp_path / "other.h"
    other.write_text((tmp_path / "m.h").read_text().replace('"epsilon": 1e-12', '"epsilon": 0.1').replace("1e-12f", "0.1f"))
    assert "eps=0.1" in scaffold(other, "pytorch").text
    with pytest.raises(RefusedError, match=r"a unit norm with the epsilon 0\.1: Keras's is always 1e-12"):
        scaffold(other, "keras")


def test_a_layer_that_its_model_has_read_from_the_end_is_read_so(tmp_path: Path) -> None:
    import keras

    layers = keras.layers
    both = layers.Bidirectional(layers.LSTM(4, return_sequences=True), name="both")
    back = layers.GRU(5, go_backwards=True, return_sequences=True, name="back")
    keras.Sequential([keras.Input((None, 3)), both, back, layers.SimpleRNN(2, name="last")]).save(tmp_path / "model.keras")
    export_model(tmp_path / "model.keras", tmp_path / "model.h")
    ways = {name.rpartition("/")[2]: (stack.first.reverse, stack.output_order) for name, stack in load(tmp_path / "model.h").layers.items()}
    assert ways == {"forward": (False, "time"), "backward": (True, "time"), "back": (True, "processing"), "last": (False, "time")}
    words = ["convert", str(tmp_path / "model.h"), str(tmp_path / "model.pt")]
    assert CliRunner().invoke(main, words).exit_code == 4 and not (tmp_path / "model.pt").exists()


def test_a_changed_header_is_not_run(tmp_path: Path) -> None:
    """Code in a header is never compiled: only what is written again for its numbers is."""
    small(tmp_path)
    export_model(tmp_path / "m.keras", tmp_path / "m.h")
    text = (tmp_path / "m.h").read_text()
    (tmp_path / "m.h").write_text(text.replace("y0[j] = sum;", "y0[j] = sum + 1;"))
    with pytest.raises(NotRunError, match="is not what rnnconvert writes"):
        whole_run.open_file(tmp_path / "m.h")
    for old, new in (
        ('"dense", [', '"dance", ['),
        ('"units": 3', '"units": 4'),
        ('"name": "m"', '"name": "m; evil"'),
        ('"width": 6', '"width": 1e9'),
    ):
        assert old in text
        (tmp_path / "m.h").write_text(text.replace(old, new))
        with pytest.raises(UnreadableError, match="its description of the whole model is damaged"):
            load(tmp_path / "m.h")


def test_states_that_last_go_on_in_the_next_call(tmp_path: Path) -> None:
    keras = needed("keras", "keras")
    x = keras.Input(batch_shape=(2, None, 3))
    built = keras.Model(x, keras.layers.Dense(2)(keras.layers.LSTM(4, stateful=True, return_sequences=True)(x)))
    randomise(built, 1)
    built.save(tmp_path / "m.keras")
    done = export_model(tmp_path / "m.keras", tmp_path / "m.h", verify=True)
    assert done.equal


def test_what_c_cannot_hold_is_refused_by_name_and_files_stay(tmp_path: Path) -> None:
    keras = needed("keras", "keras")
    x = keras.Input((None, 4))
    keras.Model(x, keras.layers.MultiHeadAttention(2, 2, name="heads")(x, x)).save(tmp_path / "m.keras")
    (tmp_path / "m.h").write_text("mine")
    with pytest.raises(
        RefusedError, match=r"'heads': a C header cannot hold .* This model can be written for coreml, onnx, openvino, tfjs or tflite"
    ):
        export_model(tmp_path / "m.keras", tmp_path / "m.h", force=True)
    with pytest.raises(UsageError, match="exists"):
        export_model(tmp_path / "m.keras", tmp_path / "m.h")
    with pytest.raises(UsageError, match="storage=int8 decides nothing"):
        export_model(tmp_path / "m.keras", tmp_path / "m.onnx", settings=["storage=int8"])
    assert (tmp_path / "m.h").read_text() == "mine"


def test_convert_names_export_where_it_leaves_the_head_out(tmp_path: Path) -> None:
    small(tmp_path)
    result = CliRunner().invoke(main, ["convert", str(tmp_path / "m.keras"), str(tmp_path / "m.h")])
    assert result.exit_code == 0, result.output
    assert "rnnconvert export" in result.output and "m.h --force" in result.output


def test_modules_of_pytorch(tmp_path: Path) -> None:
    """A head on the last step, states in and out, channels in front."""
    torch = needed("torch", "torch")

    class Streamed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.norm = torch.nn.LSTM(4, 5, 2, batch_first=True), torch.nn.LayerNorm(5)
            self.head = torch.nn.Linear(5, 3)

        def forward(self, x: Any, h: Any, c: Any) -> Any:
            y, (h, c) = self.rnn(x, (h, c))
            y = self.norm(y) + 0.5 * y
            return torch.log_softmax(self.head(y), -1), self.head(y[:, -1]), y.mean(1), y.max(1).values, h, c

    class Convolved(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = torch.nn.Conv1d(4, 6, 3, stride=2, padding=1), torch.nn.BatchNorm1d(6)
            self.rnn, self.head = torch.nn.GRU(6, 5, bidirectional=True), torch.nn.Linear(10, 3)

        def forward(self, x: Any) -> Any:
            y = torch.relu(self.norm(self.conv(x)))
            y, h = self.rnn(y.permute(2, 0, 1))
            return self.head(torch.cat([h[0], h[1]], 1)), torch.sigmoid(self.head(y))

    torch.manual_seed(0)
    states = (torch.randn(2, 3, 5), torch.randn(2, 3, 5))
    for module, inputs in ((Streamed().eval(), (torch.randn(3, 9, 4), *states)), (Convolved().eval(), (torch.randn(3, 4, 12),))):
        header = tmp_path / f"{type(module).__name__}.h"
        export_model(module, header, example=inputs)
        with torch.no_grad():
            expected = [output.numpy() for output in module(*inputs)]
        agree(in_c(header, *(x.numpy() for x in inputs)), expected)
        strictly(header)


@pytest.mark.parametrize("place", [2, 3])
def test_windows_over_an_axis_of_length_1_move_over_the_other_alone(place: int, tmp_path: Path) -> None:
    """TensorFlow's graphs have a Conv1D so: as a Conv2D of images of one row."""
    torch = needed("torch", "torch")
    needed("ncnn", "ncnn")
    need("gcc", absent({}))
    shape = (1, 3) if place == 2 else (3, 1)

    class OneRow(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.place, pads = place, tuple(length // 2 for length in shape)
            self.conv, self.pool = torch.nn.Conv2d(4, 6, shape, padding=pads), torch.nn.MaxPool2d(tuple(min(length, 2) for length in shape))
            self.rnn, self.head = torch.nn.GRU(6, 5, batch_first=True), torch.nn.Linear(5, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = torch.relu(self.conv(x.transpose(1, 2).unsqueeze(self.place)))
            return self.head(self.rnn(self.pool(y).squeeze(self.place).transpose(1, 2))[0])

    torch.manual_seed(5)
    torch.jit.script(OneRow().eval()).save(str(tmp_path / "m.pt"))
    for target in ("m.h", "m.param"):
        assert export_model(tmp_path / "m.pt", tmp_path / target, axes=[(None, 8, 4)], verify=True).equal, target


def agree_and_again(header: Path, data: Any, expected: Any) -> None:
    """Compare what a header gives, and what the ONNX gives that it is written as."""
    agree(in_c(header, data), expected)
    export_model(header, header.with_suffix(".onnx"), force=True)
    session = needed("onnxruntime", "onnxruntime").InferenceSession(str(header.with_suffix(".onnx")), providers=["CPUExecutionProvider"])
    agree(session.run(None, {session.get_inputs()[0].name: data}), expected)


def test_windows_over_the_time_and_an_axis_beside_it(tmp_path: Path) -> None:
    """Spectra: of a stated number of frequencies, in front of the time or behind it, their channels in front."""
    torch = needed("torch", "torch")
    need("gcc", absent({}))
    random = np.random.default_rng(8)

    class Spectra(torch.nn.Module):
        def __init__(self, x: Any, turned: bool) -> None:
            super().__init__()
            stride, dilation, pads, kernel, size, step, holes = (
                tuple(map(int, random.integers(low, high, 2)))
                for low, high in ((1, 3), (1, 3), (0, 3), (1, 4), (1, 4), (1, 3), (1, 3))
            )  # fmt: skip
            groups, largest, ceil = int(random.choice([1, 2])), bool(random.integers(2)), bool(random.integers(3) == 0)
            self.conv = torch.nn.Conv2d(2, 4, kernel, stride, pads, dilation, groups, bias=bool(random.integers(2)))
            step = tuple(map(min, step, size)) if ceil else step  # otherwise a last window may lie behind the input
            added = (0, 0) if ceil else tuple(int(random.integers(length // 2 + 1)) for length in size)
            if largest:
                self.pool: Any = torch.nn.MaxPool2d(size, step, added, 1 if ceil else holes, ceil_mode=ceil)
            else:
                self.pool = torch.nn.AvgPool2d(size, step, added, ceil, bool(random.integers(2)))
            self.turned = turned
            self.rnn = torch.nn.GRU(self.seen(x).shape[-1], 3, batch_first=True)

        def seen(self, x: Any) -> Any:
            y = self.pool(torch.tanh(self.conv(x)))
            return (y.permute(0, 3, 1, 2) if self.turned else y.permute(0, 2, 1, 3)).flatten(2)

        def forward(self, x: Any) -> Any:
            return self.rnn(self.seen(x))[0]

    def check(seed: int) -> None:
        torch.manual_seed(seed)
        turned = bool(seed % 2)
        x = torch.randn(2, 2, *((9, 14) if turned else (14, 9)))
        module = Spectra(x, turned).eval()
        header = tmp_path / f"{seed}.h"
        export_model(module, header, example=x)
        with torch.no_grad():
            agree_and_again(header, x.numpy(), [module(x).numpy()])
        strictly(header)

    each(range(12), check)


def test_windows_over_frames(tmp_path: Path) -> None:
    """Keyword spotters and networks over frames of Keras: windows over the time or within each step, over one to three axes."""
    keras = needed("keras", "keras")
    need("gcc", absent({}))
    a, random = keras.layers, np.random.default_rng(3)

    def windows(rank: int) -> list[Any]:
        def pair(high: int) -> tuple[int, ...]:
            return tuple(map(int, random.integers(1, high, rank)))

        words = ["same", "valid"]
        stride, dilation = (pair(3), 1) if random.integers(2) else (1, pair(3))
        conv = getattr(a, f"Conv{rank}D")(4, pair(3), strides=stride, dilation_rate=dilation, padding=str(random.choice(words)))
        pool = getattr(a, f"{random.choice(['Max', 'Average'])}Pooling{rank}D")(pair(3), pair(3), padding=str(random.choice(words)))
        return [conv, a.BatchNormalization(), a.ReLU(), pool]

    def over_frames(rank: int) -> list[Any]:
        return [*map(a.TimeDistributed, windows(rank)), a.TimeDistributed(a.Flatten())]

    def alone(rank: int) -> list[Any]:
        return [*windows(rank), getattr(a, f"Global{random.choice(['Max', 'Average'])}Pooling{rank}D")(), a.Dense(2)]

    cases = {
        "spectra": lambda: ((14, 9, 2), [*windows(2), "steps", a.GRU(3), a.Dense(2)]),
        "volumes": lambda: ((9, 8, 6, 2), [*windows(3), "steps", a.LSTM(3, return_sequences=True)]),
        "parts of a sequence": lambda: ((3, 9, 2), [*over_frames(1), a.LSTM(3)]),
        "images of a film": lambda: ((3, 9, 8, 2), [*over_frames(2), a.GRU(3, return_sequences=True)]),
        "an image": lambda: ((9, 8, 2), alone(2)),
    }

    def check(case: tuple[str, int]) -> None:
        name, seed = case
        shape, layers = cases[name]()
        x = y = keras.Input(shape)
        for layer in layers:
            y = a.Reshape((y.shape[1], int(np.prod(y.shape[2:]))))(y) if layer == "steps" else layer(y)
        model = keras.Model(x, y)
        fill(model, seed)
        model.save(tmp_path / "m.keras")
        export_model(tmp_path / "m.keras", tmp_path / "m.h", force=True)
        data = random.normal(size=(2, *shape)).astype(np.float32)
        agree_and_again(tmp_path / "m.h", data, [keras.ops.convert_to_numpy(model(data))])
        strictly(tmp_path / "m.h")

    each([(name, seed) for name in cases for seed in range(4)], check)
    layers = [a.Conv2D(8, (1, 3), padding="same"), a.MaxPooling2D((1, 2)), a.Reshape((-1, 32)), a.GRU(4, return_sequences=True)]
    model = keras.Sequential([keras.Input((None, 9, 2)), *layers])
    fill(model, 1)
    model.save(tmp_path / "m.keras")
    done = export_model(tmp_path / "m.keras", tmp_path / "m.h", force=True)
    assert any("m_step computes one time step" in note for note in done.notes), done.notes
    data = random.normal(size=(2, 6, 9, 2)).astype(np.float32)
    agree_and_again(tmp_path / "m.h", data, [keras.ops.convert_to_numpy(model(data))])


def with_ends(k: Any) -> dict[str, tuple[Any, list[Any]]]:
    """Layers that add places, leave some out or repeat them, by names: the shape of an input, and layers."""
    a = k.layers
    space = [a.ZeroPadding2D(((1, 2), (0, 3))), a.Conv2D(4, 3), a.Cropping2D(((1, 1), (0, 1))), a.UpSampling2D((2, 3))]
    frames = [a.TimeDistributed(each) for each in (a.ZeroPadding2D(1), a.UpSampling2D(2), a.Cropping2D(((1, 0), (2, 1))), a.Flatten())]
    parts: dict[str, Any] = {"from the second": slice(1, None), "but for two": slice(None, -2), "every second": slice(1, -1, 2)}
    return {
        **{f"{name} {time}": ((time, 4), [layer, a.LSTM(3, return_sequences=True)]) for time in (None, 9) for name, layer in (
            ("padded", a.ZeroPadding1D((2, 1))), ("cropped", a.Cropping1D((2, 1))), ("repeated", a.UpSampling1D(3)),
        )},
        **{name: ((None, 4), [a.Lambda(lambda x, part=part: x[:, part]), a.GRU(2)]) for name, part in parts.items()},
        "repeated and halved": ((None, 4), [a.UpSampling1D(2), a.Conv1D(3, 4, strides=2), a.LSTM(2)]),
        "images": ((6, 5, 3), [*space, a.GlobalAveragePooling2D()]),
        "images over time": ((None, 5, 3), space),
        "an image a step": ((None, 4, 5, 2), [*frames, a.LSTM(3)]),
        "bodies": ((4, 5, 3, 2), [a.ZeroPadding3D((1, 2, 1)), a.Cropping3D(((0, 2), (1, 1), (1, 0))), a.UpSampling3D(2), a.Flatten()]),
    }  # fmt: skip


def test_places_at_the_ends_of_axes(tmp_path: Path) -> None:
    k = needed("keras", "keras")
    need("gcc", absent({}))
    every = with_ends(k)

    def check(name: str) -> None:
        shape, layers = every[name]
        x = y = k.Input(shape)
        for layer in layers:  # as calls of operators, not as Lambda
            y = layer.function(y) if isinstance(layer, k.layers.Lambda) else layer(y)
        model = k.Model(x, y)
        fill(model, 3)
        model.save(tmp_path / "m.keras")
        done = export_model(tmp_path / "m.keras", tmp_path / "m.h", force=True)
        strictly(tmp_path / "m.h", done)
        for length in (9, 7) if None in shape else (9,):
            data = np.random.default_rng(4).normal(size=(2, *(each or length for each in shape))).astype(np.float32)
            agree_and_again(tmp_path / "m.h", data, k.ops.convert_to_numpy(model(data)))

    each(every, check)


def test_a_sequence_that_is_longer_at_first_meets_the_one_that_it_came_of(tmp_path: Path) -> None:
    """Its windows give as many steps as there were; one that is shorter at first may have none left of a short sequence."""
    torch = needed("torch", "torch")
    need("gcc", absent({}))

    class Causal(torch.nn.Module):
        def __init__(self, mode: str, first: int) -> None:
            super().__init__()
            self.mode, self.first, self.conv = mode, first, torch.nn.Conv1d(4, 4, 3)

        def forward(self, x: Any) -> Any:
            y = x.transpose(1, 2)[:, :, self.first :]
            return x + self.conv(torch.nn.functional.pad(y, (2 + self.first, 0), self.mode, 0.0)).transpose(1, 2)

    torch.manual_seed(3)
    x = torch.randn(2, 8, 4)
    for mode in ("constant", "replicate"):
        module = Causal(mode, 0).eval()
        torch.jit.trace(module, x).save(str(tmp_path / "m.pt"))
        export_model(tmp_path / "m.pt", tmp_path / "m.h", force=True, axes=3)
        for part in (x, x[:, :1]):
            agree_and_again(tmp_path / "m.h", part.numpy(), [module(part).detach().numpy()])
    for module, words in ((Causal("reflect", 0), "a reflection of more steps"), (Causal("constant", 1), "may have several lengths")):
        torch.jit.trace(module.eval(), x).save(str(tmp_path / "m.pt"))
        with pytest.raises(RefusedError, match=words):
            export_model(tmp_path / "m.pt", tmp_path / "m.h", force=True, axes=3)


def test_one_layer_alone_needs_no_order(tmp_path: Path) -> None:
    torch = needed("torch", "torch")
    torch.manual_seed(0)
    gru, x = torch.nn.GRU(4, 3, 2, batch_first=True), torch.randn(2, 6, 4)
    torch.save(gru.state_dict(), tmp_path / "gru.pt")
    result = CliRunner().invoke(main, ["export", str(tmp_path / "gru.pt"), str(tmp_path / "gru.h")])
    assert result.exit_code == 0 and "its input is (batch, time, values)" in result.output and "caller" not in result.output
    with torch.no_grad():
        agree(in_c(tmp_path / "gru.h", x.numpy()), gru(x)[0].numpy())


def test_the_program_of_the_tutorial_gives_what_keras_gives(tmp_path: Path) -> None:
    keras, root = needed("keras", "keras"), ROOT
    need("gcc", absent({}))
    page = (root / "docs" / "tutorial-c.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"^    #include <stdio.h>\n(?:    .*\n|\n)+?    }\n", page, re.M)
    (tmp_path / "program.c").write_text(textwrap.dedent(program))
    export_model(root / "examples" / "encoder.keras", tmp_path / "encoder.h")
    flags = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-O3", "-fassociative-math", "-fno-signed-zeros", "-fno-trapping-math"]
    subprocess.run(["gcc", *flags, "program.c", "-lm", "-o", "program"], cwd=tmp_path, check=True)
    printed = subprocess.run([tmp_path / "program"], capture_output=True, text=True, check=True).stdout
    x = (np.arange(120) % 7 / 7).reshape(1, 20, 6).astype(np.float32)
    model = keras.saving.load_model(root / "examples" / "encoder.keras", compile=False)
    np.testing.assert_allclose([*map(float, printed.split())], np.asarray(model(x))[0], atol=2e-6)


def named(path: Path, *layers: str) -> Path:
    """Save a chain of LSTMs and matrices with these names, in turn."""
    helper, tensor = onnx.helper, onnx.numpy_helper.from_array
    make = np.random.default_rng(0)
    stored = [tensor(make.normal(size=shape).astype("f4"), word) for word, shape in (("W", (1, 16, 4)), ("R", (1, 16, 4)), ("K", (4, 4)))]
    nodes, x = [], "x"
    for number, name in enumerate(layers):
        if number % 2:
            nodes.append(helper.make_node("MatMul", [x, "K"], [f"y{number}"], name=name))
        else:
            nodes.append(helper.make_node("LSTM", [x, "W", "R"], [f"Y{number}"], hidden_size=4, name=name))
            nodes.append(helper.make_node("Squeeze", [f"Y{number}", "one"], [f"y{number}"]))
        x = f"y{number}"
    ends = [helper.make_tensor_value_info(end, 1, ["t", "b", 4]) for end in ("x", x)]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [*stored, tensor(np.array([1]), "one")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def test_the_axis_of_a_single_step_is_dropped(tmp_path: Path) -> None:
    """Exporters write the last step of a sequence of one as all of its steps, without their axis."""
    model = onnx.load(named(tmp_path / "m.onnx", "rnn"))
    model.graph.node.append(onnx.helper.make_node("Squeeze", ["y0", "zero"], ["last"]))
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([0]), "zero"))
    del model.graph.output[:]
    model.graph.output.append(onnx.helper.make_tensor_value_info("last", 1, ["b", 4]))
    onnx.save(model, tmp_path / "open.onnx")
    with pytest.raises(RefusedError, match="only those of length 1"):
        export_model(tmp_path / "open.onnx", tmp_path / "m.h")
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    onnx.save(model, tmp_path / "m.onnx")
    assert export_model(tmp_path / "m.onnx", tmp_path / "m.h", verify=True).equal
    strictly(tmp_path / "m.h")


@pytest.mark.parametrize(
    "layers",
    [
        ("\u5c42", "\u0441\u043b\u043e\u0439"),
        ("\u00e9", "_"),
        ("!!!", "?"),
        ("kept", "kept_0"),
        ("state", "step", "run", "work", "advance"),
        ("x", "x_W", "X", "x!W"),
    ],
)
def test_layers_of_any_name_compile(layers: tuple[str, ...], tmp_path: Path) -> None:
    """A name without a letter that C has, one like the model's own identifiers, and one that begins like another's."""
    need("gcc", absent({}))
    source = named(tmp_path / "m.onnx", *layers)
    for settings in ((), ("storage=int8",)):
        strictly(tmp_path / "o.h", export_model(source, tmp_path / "o.h", force=True, settings=settings))


def test_no_comment_has_what_nobody_sees(tmp_path: Path) -> None:
    unseen = "\u202e\u2066\u200b\ufeff\u3164\u034f\ufe0f\u2028\x7f\x85\U000e0101"
    source = named(tmp_path / "m.onnx", f"a{unseen}", f"b{unseen}")
    export_model(source, tmp_path / "o.h")
    text = (tmp_path / "o.h").read_text(encoding="utf-8")
    assert not set(unseen) & set(text)
    strictly(tmp_path / "o.h")


@pytest.mark.parametrize("model", ["encoder.keras", "decoder.keras"])
def test_the_lines_that_export_prints_run_the_header(model: str, tmp_path: Path) -> None:
    need("gcc", absent({}))
    done = export_model(ROOT / "examples" / model, tmp_path / "m.h")
    strictly(tmp_path / "m.h", done)
    head, *call = done.recipe
    program = "\n".join(["#include <stdio.h>", head, "int main(void) {", *call, 'printf("%.9g", y[0]);', "return 0;", "}", ""])
    (tmp_path / "main.c").write_text(program)
    subprocess.run(["gcc", "-std=c99", "main.c", "-o", "main", "-lm"], cwd=tmp_path, check=True)
    result = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True)
    (outputs,) = in_c(tmp_path / "m.h", np.zeros((1, 7, 6), np.float32))
    assert abs(float(result.stdout) - outputs.ravel()[0]) < 1e-6


def test_whole_numbers_beyond_those_of_float32_are_refused(tmp_path: Path) -> None:
    helper, types = onnx.helper, onnx.TensorProto

    def model(operator: str, number: Any) -> Path:
        nodes = [helper.make_node(operator, ["x", "k"], ["a"]), helper.make_node("Cast", ["a"], ["y"], to=types.FLOAT)]
        axes = ["batch", np.size(number) if np.size(number) > 1 else "time"]
        places = [helper.make_tensor_value_info(name, kind, axes) for name, kind in (("x", types.INT64), ("y", types.FLOAT))]
        stored = onnx.numpy_helper.from_array(np.asarray(number, np.int64), "k")
        graph = helper.make_graph(nodes, "g", places[:1], places[1:], [stored])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
        return tmp_path / "m.onnx"

    for operator in ("Add", "Sub", "Mul"):
        for number in ((1 << 24) + 1, [(1 << 24) + 1], -(1 << 24) - 1):
            with pytest.raises(RefusedError, match="up to 16,777,216 alone"):
                export_model(model(operator, number), tmp_path / "m.h", force=True)
        done = export_model(model(operator, 3), tmp_path / "m.h", force=True)
        assert "whole numbers are computed in float32, exactly up to 16,777,216" in done.notes
    done = export_model(model("ReduceSum", [1]), tmp_path / "m.h", force=True)
    assert "whole numbers are computed in float32, exactly up to 16,777,216" in done.notes
    for number in ([(1 << 24) + 1] * 40, [(1 << 53) + 1, 2]):  # one number everywhere, and one that float64 lacks, too
        with pytest.raises(RefusedError, match="float32, it lacks"):
            export_model(model("Add", number), tmp_path / "m.h", force=True)
    with pytest.raises(RefusedError, match="float16, it lacks 2049"):
        export_model(model("Add", [2049, 3]), tmp_path / "m.h", dtype="float16", force=True)
