"""Whole models as C headers: compiled by the system's compiler, they give what their framework gives."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from rnnconvert.cli.main import main
from rnnconvert.core.errors import RefusedError, UnreadableError, UsageError
from rnnconvert.files.load import load
from rnnconvert.formats.c_header import whole_run
from rnnconvert.formats.c_header.run import absent
from rnnconvert.models.runners import NotRunError
from rnnconvert.scaffolding.export import export_model
from tests.drawn import drawn, each
from tests.requirements import need, needed
from tests.whole_models import randomise

pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Layer .* was passed an input with a mask:UserWarning"),
    pytest.mark.filterwarnings("ignore:You are using a softmax over axis:UserWarning"),
    pytest.mark.filterwarnings("ignore:The tensor attributes:UserWarning"),
]
COMPILERS = (["gcc", "-std=c99"], ["g++"])


def in_c(header: Path, *inputs: Any) -> tuple[Any, ...]:
    """Return what the model of a header gives."""
    need("gcc", absent({}))
    return whole_run.open_file(header).ran([("", x) for x in inputs], ())[0].outputs


def strictly(header: Path) -> None:
    """Compile a header as C and as C++ without a warning."""
    for compiler in COMPILERS:
        source = header.parent / ("main.cc" if compiler == ["g++"] else "main.c")
        source.write_text(f'#include "{header.name}"\nint main(void) {{ return 0; }}\n')
        command = [*compiler, "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-c", source.name, "-o", "main.o"]
        done = subprocess.run(command, cwd=header.parent, capture_output=True, text=True, check=False)
        assert not done.returncode, done.stderr[:2000]


def sequence(k: Any, random: Any, x: Any, y: Any) -> Any:
    """Return one more layer over a sequence of vectors."""
    layers, width = k.layers, int(y.shape[-1])
    units = int(random.integers(1, 7))
    kind = str(random.choice([
        "lstm", "gru", "gru before", "rnn", "dense", "activation", "layer_norm", "batch_norm", "rms_norm", "residual", "conv",
        "concatenate", "bidirectional", "dropout", "distributed",
    ]))  # fmt: skip
    if kind == "lstm":
        return layers.LSTM(units, return_sequences=True)(y)
    if kind.startswith("gru"):
        return layers.GRU(units, return_sequences=True, reset_after=kind == "gru")(y)
    if kind == "rnn":
        return layers.SimpleRNN(units, return_sequences=True, go_backwards=bool(random.integers(4) == 0))(y)
    if kind in ("dense", "distributed"):
        dense = layers.Dense(units, activation=str(random.choice(["relu", "tanh", "gelu", "swish", "elu", "softplus"])))
        return dense(y) if kind == "dense" else layers.TimeDistributed(dense)(y)
    if kind == "activation":
        return layers.Activation(str(random.choice(["softmax", "sigmoid", "selu", "hard_sigmoid", "relu6", "softsign"])))(y)
    if kind == "layer_norm":
        return layers.LayerNormalization()(y)
    if kind == "rms_norm":
        return layers.RMSNormalization()(y)
    if kind == "batch_norm":
        return layers.BatchNormalization()(y)
    if kind == "residual":
        return layers.Add()([y, layers.LSTM(width, return_sequences=True)(y)])
    if kind == "conv":
        return layers.Conv1D(units, 3, padding=str(random.choice(["causal", "same"])), dilation_rate=int(random.integers(1, 3)))(y)
    if kind == "concatenate":
        return layers.Concatenate()([y, layers.Multiply()([y, layers.Dense(width)(y)])])
    if kind == "bidirectional":
        merge = [None, "concat", "sum", "ave", "mul"][int(random.integers(1, 5))]
        return layers.Bidirectional(layers.GRU(units, return_sequences=True), merge_mode=merge)(y)
    return layers.Dropout(0.3)(y)


def model(k: Any, random: Any) -> tuple[Any, Any]:
    """Return a random model with its input: a chain of layers over a sequence, and a head on its end, or on every step."""
    layers, steps = k.layers, int(random.integers(1, 10))
    words = bool(random.integers(2))
    x = k.Input((None,), dtype="int32") if words else k.Input((None, 3))
    y = layers.Embedding(9, 4, mask_zero=bool(random.integers(2)))(x) if words else x
    for _ in range(int(random.integers(1, 4))):
        y = sequence(k, random, x, y)
    head = int(random.integers(5))
    if head == 0:
        y = layers.GRU(3)(y)
    elif head == 1:
        y = layers.GlobalAveragePooling1D()(y)
    elif head == 2:
        y = layers.Bidirectional(layers.LSTM(2))(y)
    elif head == 3:
        y = list(layers.LSTM(3, return_state=True)(y))
    y = [layers.Dense(2, activation="softmax")(y[0]), *y[1:]] if isinstance(y, list) else layers.Dense(2)(y)
    data = random.integers(0, 9, (3, steps)).astype(np.int32) if words else random.normal(size=(3, steps, 3)).astype(np.float32)
    return k.Model(x, y), data


def agree(outputs: Any, expected: Any, tolerance: float = 2e-5) -> None:
    expected = expected if isinstance(expected, (list, tuple)) else [expected]
    assert len(outputs) == len(expected)
    for output, truth in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(output, np.asarray(truth), rtol=tolerance, atol=tolerance)


def test_models_drawn_from_all_layers(tmp_path: Path) -> None:
    """Random models give in C what Keras gives, and are read again as they were written."""
    keras = needed("keras", "keras")
    need("gcc", absent({}))
    forms = set()

    def check(seed: int) -> None:
        keras.utils.clear_session()
        built, data = model(keras, np.random.default_rng(seed))
        randomise(built, seed)
        built.save(tmp_path / f"m{seed}.keras")
        header = tmp_path / f"m{seed}.h"
        done = export_model(tmp_path / f"m{seed}.keras", header)
        forms.add("_step computes" in " ".join(done.notes))
        agree(in_c(header, data), built(data, training=False))
        assert not [warning for warning in load(header).warnings if "only its numbers" in warning]

    each(drawn(range(100), 12, "models in C"), check)
    assert forms == {True, False}


def test_what_is_written_compiles_without_a_warning(tmp_path: Path) -> None:
    keras = needed("keras", "keras")
    need("gcc", absent({}))
    for seed, settings in ((1, []), (2, ["storage=int8"]), (5, [])):
        built, _ = model(keras, np.random.default_rng(seed))
        built.save(tmp_path / "m.keras")
        export_model(tmp_path / "m.keras", tmp_path / "m.h", force=True, settings=settings, dtype="float16" if seed == 5 else None)
        strictly(tmp_path / "m.h")


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
        assert "sum += part * m_lstm_W_scale[j];" in text, "the scale is outside of the loop"


def test_int8_is_not_held_to_the_numbers_of_its_source(tmp_path: Path) -> None:
    small(tmp_path)
    done = export_model(tmp_path / "m.keras", tmp_path / "m.h", settings=["storage=int8"], verify=True)
    assert not done.equal and "equal but for: its matrices are rounded to int8" in str(done)


def test_a_header_of_a_whole_model_is_read_and_proved(tmp_path: Path) -> None:
    small(tmp_path)
    result = CliRunner().invoke(main, ["export", str(tmp_path / "m.keras"), str(tmp_path / "m.h"), "--verify"])
    assert result.exit_code == 0, result.output
    assert "equal: 3 runs" in result.output
    assert set(load(tmp_path / "m.h").layers) == {"lstm", "gru"}
    result = CliRunner().invoke(main, ["inspect", str(tmp_path / "m.h")])
    assert "the header is a whole model, m_run; beside its recurrent layers it computes: dense, softmax" in result.output
    result = CliRunner().invoke(main, ["verify", str(tmp_path / "m.keras"), str(tmp_path / "m.h")])
    assert result.exit_code == 0, result.output


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
        RefusedError, match=r"'heads': a C header cannot hold .* This model can be written for coreml, onnx, openvino or tflite"
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

    class Streamed(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.norm = torch.nn.LSTM(4, 5, 2, batch_first=True), torch.nn.LayerNorm(5)
            self.head = torch.nn.Linear(5, 3)

        def forward(self, x: Any, h: Any, c: Any) -> Any:
            y, (h, c) = self.rnn(x, (h, c))
            y = self.norm(y) + 0.5 * y
            return torch.log_softmax(self.head(y), -1), self.head(y[:, -1]), y.mean(1), y.max(1).values, h, c

    class Convolved(torch.nn.Module):  # type: ignore[misc,name-defined]
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
