"""A class of a user's own is never taken for the built-in one of its name, wherever it stands in a Keras model."""

from __future__ import annotations

import inspect
import itertools
import json
import shutil
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import keras
import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core import reference
from rnnconvert.formats.keras import flow
from rnnconvert.formats.keras.describe.layers import LAYERS
from rnnconvert.formats.keras.model import operators
from rnnconvert.formats.keras.model.entries import MODELS, RECURRENT, entry, every
from rnnconvert.formats.keras.model.masks import EFFECTS, READING
from rnnconvert.formats.keras.upgrade import tables
from tests import ROOT
from tests.helpers.commands import call
from tests.helpers.drawn import drawn, each
from tests.helpers.requirements import needed

pytestmark = pytest.mark.filterwarnings("ignore")

CLASSES = sorted(
    {
        *(entry({"class_name": name, "config": {}}).short_class_name for name in RECURRENT),
        *LAYERS,
        *(name.rpartition(">")[2] for name in tables.LAYERS),
        *MODELS,
        *(set(EFFECTS) - {*RECURRENT}),
        *(name for name in map(str, operators.DIALECT) if name[:1].isupper()),
        "Wrapper",
        "StackedRNNCells",
        "LSTMCell",
        "Masking",
    }
    - {"InputLayer"}
)
"""The classes that any table names."""


def _changed(source: Path, target: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """Copy a .keras file with another configuration."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for item in old.namelist():
            data = old.read(item)
            if item == "config.json":
                config = json.loads(data)
                change(config)
                data = json.dumps(config).encode()
            new.writestr(item, data)
    return target


def _entry_of_own(class_name: str, registered: bool) -> dict[str, Any]:
    module = "their.layers" if not registered else "__main__"
    return {"module": module, "class_name": class_name, "registered_name": f"my>{class_name}" if registered else class_name}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A layer in front of an LSTM, a layer around one, and a layer inside one."""
    layers, folder = keras.layers, tmp_path_factory.mktemp("models")
    chains = {
        "in front": [layers.Identity(), layers.LSTM(4, return_sequences=True)],
        "around": [layers.Bidirectional(layers.LSTM(4, return_sequences=True))],
        "inside": [layers.RNN(layers.StackedRNNCells([layers.LSTMCell(4), layers.LSTMCell(4)]), return_sequences=True)],
    }
    for place, chain in chains.items():
        keras.Sequential([keras.Input((5, 3)), *chain]).save(folder / f"{place}.keras")
    return {place: folder / f"{place}.keras" for place in chains}


def _put(place: str, class_name: str, registered: bool) -> Callable[[dict[str, Any]], None]:
    def change(config: dict[str, Any]) -> None:
        layer = config["config"]["layers"][1]
        layer = layer["config"]["cell"] if place == "inside" else layer
        layer |= _entry_of_own(class_name, registered)

    return change


def test_a_class_that_is_not_built_in_has_no_plain_name() -> None:
    plain: dict[str, Any] = {"config": {"name": "it"}}
    forms: list[dict[str, Any]] = [
        {"class_name": "my>LSTM"},
        {"module": "__main__", "class_name": "LSTM", "registered_name": "my>LSTM"},
        {"module": "keras.mine", "class_name": "LSTM", "registered_name": "my>LSTM"},
        {"module": "their.layers", "class_name": "LSTM", "registered_name": "LSTM"},
        {"module": "their.layers", "class_name": "LSTM", "registered_name": None},
        {"module": None, "class_name": "LSTM", "registered_name": "LSTM"},
    ]
    for form in forms:
        layer = entry(form | plain)
        assert layer.class_name not in CLASSES and not layer.built_in and layer.short_class_name == "LSTM", form
    ours: list[dict[str, Any]] = [
        {"class_name": "LSTM"},
        {"module": "keras.layers", "class_name": "LSTM", "registered_name": None},
        {"module": "keras_core.layers", "class_name": "LSTM", "registered_name": None},
        {"module": "keras.src.layers.rnn.lstm", "class_name": "LSTM", "registered_name": "LSTM"},
    ]
    for form in ours:
        assert (entry(form | plain).class_name, entry(form | plain).built_in) == ("LSTM", True), form


def test_no_command_takes_an_own_class_for_the_built_in_one_of_its_name(models: dict[str, Path], tmp_path: Path) -> None:
    cases = [(place, class_name, registered) for place in models for class_name in CLASSES for registered in (True, False)]

    def check(case: tuple[str, str, bool]) -> None:
        place, class_name, _ = case
        path = _changed(models[place], tmp_path / "own.keras", _put(*case))
        for command in (
            lambda: rc.export_model(path, tmp_path / "x.onnx", force=True),
            lambda: rc.scaffold(path, "pytorch", tmp_path / "x.py", force=True),
        ):
            with pytest.raises(rc.RnnConvertError):
                command()
        if place != "in front":
            checkpoint = rc.load(path)
            assert not checkpoint.layers and f">{class_name}" in str(checkpoint.unread), checkpoint.unread
            with pytest.raises(rc.RnnConvertError, match=class_name):
                rc.convert(path, tmp_path / "y.onnx", force=True)
        else:
            (stack,) = rc.load(path).layers.values()
            assert all("not built in" in call.mask for call in stack.calls) and len(stack.calls) == 1
            assert "may mask steps" in str(rc.convert(path, tmp_path / "y.onnx", force=True))

    each(drawn(cases, 40, "own classes", always=lambda case: case[1] in ("Bidirectional", "TimeDistributed", "StackedRNNCells")), check)


OFTEN = ("Bidirectional", "TimeDistributed", "StackedRNNCells", "LSTM")
"""The names whose cases are tried in every run."""


def test_no_command_reads_fills_or_compares_an_own_class_as_the_built_in_one(models: dict[str, Path], tmp_path: Path) -> None:
    cases = [(place, class_name, registered) for place in models for class_name in CLASSES for registered in (True, False)]

    def check(case: tuple[str, str, bool]) -> None:
        place, class_name, _ = case
        built_in, changed = models[place], _changed(models[place], tmp_path / "own.keras", _put(*case))
        inspected = call("inspect", changed).output
        if "no recurrent layer could be read" not in inspected:
            assert place == "in front" and "'identity', of a class that is not built in" in inspected
            assert rc.verify(built_in, changed).verdict == "equal but for"
            assert "'identity', of a class that is not built in" in str(rc.diff(built_in, changed))
            return
        assert f">{class_name}' is not one of Keras's own" in inspected
        for command in (rc.verify, rc.diff):
            with pytest.raises(rc.RnnConvertError, match="no recurrent layers"):
                command(built_in, changed)
        for source, target in ((changed, built_in), (built_in, changed)):
            done = call("transplant", source, "--into", target, "-o", tmp_path / "filled.keras")
            assert done.exit_code == 4 and not (tmp_path / "filled.keras").exists(), done.output

    each(drawn(cases, 10, "commands of own classes", always=lambda case: case[1] in OFTEN and case[2]), check)


def _entries(value: Any) -> Iterator[dict[str, Any]]:
    """Yield every layer and cell in a configuration, but for the models and what gives them their inputs."""
    if isinstance(value, dict):
        named = isinstance(value.get("config"), dict) and "name" in value["config"]
        if named and value.get("class_name") not in ("Functional", "Sequential", "InputLayer"):
            yield value
        value = [*value.values()]
    for inner in value if isinstance(value, list) else ():
        yield from _entries(inner)


def test_own_classes_in_a_file_of_keras_2_are_neither_read_nor_upgraded(tmp_path: Path) -> None:
    with tarfile.open(ROOT / "tests" / "golden" / "keras_versions" / "2.15.tar.xz") as packed:
        packed.extract("whole.h5", tmp_path, filter="data")
    with h5py.File(tmp_path / "whole.h5") as file:
        config = str(file.attrs["model_config"])
    count = len([*_entries(json.loads(config))])
    layers = set(rc.load(tmp_path / "whole.h5").layers)

    def check(number: int) -> None:
        document = json.loads(config)
        changed = [*_entries(document)][number]
        wrapped = {id(inner): outer["config"]["name"] for outer in _entries(document) for inner in _entries(outer["config"])}
        name = wrapped.get(id(changed), changed["config"].get("name"))
        changed["class_name"] = f"my>{changed['class_name']}"
        path = tmp_path / "own.h5"
        shutil.copy(tmp_path / "whole.h5", path)
        with h5py.File(path, "r+") as file:
            file.attrs["model_config"] = json.dumps(document)
        with pytest.raises(rc.RnnConvertError, match="my>"):
            rc.upgrade(path, tmp_path / "new.keras", force=True)
        assert set(rc.load(path).layers) == layers - {name}

    each(drawn(range(count), 8, "own classes of Keras 2"), check)


@keras.saving.register_keras_serializable("own_classes")
class Gate(keras.layers.Layer):
    """Mask steps whose first value is zero."""

    def compute_mask(self, x: Any, mask: Any = None) -> Any:
        return keras.ops.not_equal(x[..., 0], 0)

    def call(self, x: Any) -> Any:
        return x


def test_a_layer_behind_an_own_class_is_proved_but_for_the_mask(tmp_path: Path) -> None:
    keras.Sequential([keras.Input((5, 3)), Gate(), keras.layers.LSTM(4, return_sequences=True)]).save(tmp_path / "own.keras")
    report = rc.convert(tmp_path / "own.keras", tmp_path / "own.onnx", verify=True).report
    assert report is not None and report.verdict == "equal but for"
    assert "mask" in [limit["kind"] for limit in report.document["limits"]]


@keras.saving.register_keras_serializable("own_classes")
class Doubled(keras.layers.Wrapper):
    """Give twice what its layer gives."""

    def build(self, shape: Any) -> None:
        self.layer.build(shape)
        super().build(shape)

    def call(self, x: Any) -> Any:
        return self.layer(x) * 2

    def compute_output_shape(self, shape: Any) -> Any:
        return self.layer.compute_output_shape(shape)


def test_a_layer_that_an_own_class_is_around_is_read_with_a_note(tmp_path: Path) -> None:
    layers = keras.layers
    inner = [
        lambda: layers.Bidirectional(layers.LSTM(4, activation="relu", return_sequences=True), merge_mode="sum"),
        lambda: layers.GRU(4, recurrent_activation="hard_sigmoid", reset_after=False, return_sequences=True),
        lambda: layers.RNN(layers.SimpleRNNCell(4, activation="softsign"), return_sequences=True),
    ]
    x = np.random.default_rng(0).normal(size=(2, 5, 3)).astype(np.float32)

    def check(case: tuple[int, str, bool]) -> None:
        number, ending, deep = case
        layer = inner[number]()
        model = keras.Sequential([keras.Input((5, 3)), Doubled(Doubled(layer) if deep else layer), layers.Dense(2)])
        model.save(tmp_path / f"own{ending}")
        checkpoint = rc.load(tmp_path / f"own{ending}")
        (stack,) = checkpoint.layers.values()
        assert "the class 'own_classes>Doubled' around it is not one of Keras's own" in " ".join(map(str, checkpoint.warnings))
        assert not checkpoint.questions
        y = reference.run(stack, x.swapaxes(0, 1).astype(float)).y
        np.testing.assert_allclose(y.swapaxes(0, 1), keras.ops.convert_to_numpy(layer(x)), atol=1e-5)

    each(itertools.product(range(3), (".keras", ".h5"), (False, True)), check)


@keras.saving.register_keras_serializable("own_classes")
class Unstated(keras.layers.Layer):
    """A layer whose configuration does not state the one inside."""

    def __init__(self, units: int = 4, **options: Any) -> None:
        super().__init__(**options)
        self.units, self.inner = units, keras.layers.LSTM(units, return_sequences=True)

    def build(self, shape: Any) -> None:
        self.inner.build(shape)
        super().build(shape)

    def call(self, x: Any) -> Any:
        return self.inner(x)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "units": self.units}


def test_a_layer_inside_an_own_class_that_does_not_state_it_is_read_from_the_live_model(tmp_path: Path) -> None:
    torch = needed("torch", "torch")
    model = keras.Sequential([keras.Input((5, 3)), Unstated(4, name="encoder")])
    path = tmp_path / "m.h5"
    model.save(path)
    result = call("convert", path, tmp_path / "m.onnx")
    advice = "rnnconvert.load_into(module, keras.models.load_model(file))"
    assert result.exit_code == 4 and advice in result.stderr and not (tmp_path / "m.onnx").exists()
    module, x = torch.nn.LSTM(3, 4, batch_first=True), np.random.default_rng(0).normal(size=(2, 5, 3)).astype(np.float32)
    rc.load_into(module, keras.models.load_model(path))
    expected = keras.ops.convert_to_numpy(model(x))
    np.testing.assert_allclose(module(torch.from_numpy(x))[0].detach().numpy(), expected, atol=1e-6)


def test_the_table_of_masks_is_that_of_keras() -> None:
    """What every built-in layer gives of a mask on what it reads is what the table says, and so is which layers are called with it."""
    differ, compared = [], set()
    kinds: dict[Any, None] = dict.fromkeys(filter(inspect.isclass, vars(keras.layers).values()))
    for kind in kinds:
        if not issubclass(kind, keras.layers.Layer) or kind in (keras.layers.Layer, keras.layers.Lambda):
            continue
        if "image_preprocessing" in kind.__module__ or kind is keras.layers.Pipeline:  # steps before a model
            continue
        name = kind.__name__
        if ("mask" in inspect.signature(kind.call).parameters) != (name in READING):
            differ.append(f"{name}: Keras calls it {'without' if name in READING else 'with'} a mask")
        effect = _effect(name, kind)
        if effect is not None:
            compared.add(name)
            expected = EFFECTS.get(name, "")
            if effect != {"inside": "pass"}.get(expected, expected):
                differ.append(f"{name}: {effect or 'drop'} in Keras, {expected or 'drop'} in the table")
    assert not differ
    assert {name for name in EFFECTS if hasattr(keras.layers, name)} <= compared


def _effect(name: str, kind: Any) -> str | None:
    """What a class of layers does with masks, in the words of the table; None for one that no array here is for."""

    def after(masked: int, tensors: int, **settings: Any) -> tuple[bool, bool]:
        """Whether what a layer gives has a mask, and that of what it reads first: `tensors`, of which the first so many are masked."""
        for rank in (3, 4, 5, 6, 2):
            arrays = [keras.ops.ones((2, *[4] * (rank - 1)), "int32" if rank == 2 else "float32") for _ in range(tensors)]
            masks = [keras.ops.ones((2, 4), "bool") for _ in arrays[:masked]]
            for arguments in ([*arrays], [arrays], [arrays[0], *arrays], [[arrays[0], *arrays]]):
                layer = _built(name, kind)
                for key, value in settings.items():
                    setattr(layer, key, value)
                for array, mask in zip(arrays, masks, strict=False):
                    array._keras_mask = mask  # a call that fails takes it away
                try:
                    output = layer(*arguments)
                except Exception:  # most layers take one of these forms alone
                    continue
                mask = getattr(output[0] if isinstance(output, list | tuple) else output, "_keras_mask", None)
                return mask is not None, any(mask is first for first in masks[:1])
        raise ValueError("nothing that it takes")

    try:
        if _built(name, kind) is None:
            return None
        if name in RECURRENT:
            sequences = {"return_sequences": True}
            sequence_masks = after(1, 1, **sequences) if name != "Bidirectional" else after(1, 1)
            return "sequences" if sequence_masks == (True, True) else ""
        if after(0, 1)[0]:
            return "make"
        if EFFECTS.get(name) == "join":
            return "join" if after(2, 2)[0] and (name == "Concatenate" or not after(1, 2)[0]) else ""
        return "pass" if after(1, 1) == (True, True) else ""
    except ValueError:
        return None


def _built(name: str, kind: Any) -> Any:
    arguments: dict[str, tuple[Any, ...]] = {
        "Dense": (4,),
        "GroupNormalization": (2,),
        "SpectralNormalization": (keras.layers.Dense(4),),
        "Bidirectional": (keras.layers.LSTM(2, return_sequences=True),),
        "RNN": (keras.layers.LSTMCell(2),),
        "LSTM": (2,),
        "GRU": (2,),
        "SimpleRNN": (2,),
        "ConvLSTM1D": (2, 1),
        "ConvLSTM2D": (2, 1),
        "ConvLSTM3D": (2, 1),
        "Embedding": (9, 2, "uniform", None, None, True),
        "ReversibleEmbedding": (9, 2, True, "uniform", None, None, True),
        "EinsumDense": ("abc,cd->abd", (None, 4)),
        "MultiHeadAttention": (1, 2),
        "GroupQueryAttention": (2, 2, 1),
        "Dropout": (0.1,),
        "AlphaDropout": (0.1,),
        "GaussianDropout": (0.1,),
        "GaussianNoise": (0.1,),
        "Activation": ("relu",),
        "SpatialDropout1D": (0.1,),
        "SpatialDropout2D": (0.1,),
        "SpatialDropout3D": (0.1,),
        "Rescaling": (2.0,),
        "TimeDistributed": (keras.layers.Dense(2),),
        "Permute": ((1,),),
        "Reshape": ((3,),),
        "RepeatVector": (2,),
        "Conv1D": (2, 1),
        "Conv1DTranspose": (2, 1),
        "SeparableConv1D": (2, 1),
    }
    try:
        return kind(*arguments.get(name, ()))
    except (TypeError, ValueError, ImportError):  # classes that take other arguments have no mask: they read images, words or cells
        return None


def test_a_mask_that_keras_drops_is_not_named(tmp_path: Path) -> None:
    layers = keras.layers
    for between in (layers.RMSNormalization(), layers.EinsumDense("abc,cd->abd", (None, 3)), layers.Conv1D(3, 1)):
        model = keras.Sequential([keras.Input((5,)), layers.Embedding(7, 3, mask_zero=True), between, layers.LSTM(4)])
        model.save(tmp_path / "dropped.keras")
        (stack,) = rc.load(tmp_path / "dropped.keras").layers.values()
        assert [call.mask for call in stack.calls] == [""], between
        layer = entry(json.loads(zipfile.ZipFile(tmp_path / "dropped.keras").read("config.json")))
        assert flow.KerasFlow(layer).masks("lstm" if "lstm" in {x.name for x in every(layer)} else stack.name) == "none"


def test_a_mask_that_passes_through_the_layer_inside_a_wrapper_is_named(tmp_path: Path) -> None:
    """Keras's SpectralNormalization says that it drops masks, and gives that of its layer."""
    layers = keras.layers
    for inner, mask in ((layers.Dense(3), "that of 'masking'"), (layers.Conv1D(3, 1), "")):
        wrapped = layers.SpectralNormalization(inner)
        model = keras.Sequential([keras.Input((4, 3)), layers.Masking(name="masking"), wrapped, layers.LSTM(4, name="lstm")])
        path = tmp_path / f"{inner.name}.keras"
        model.save(path)
        (stack,) = rc.load(path).layers.values()
        assert [call.mask for call in stack.calls] == [mask], inner
        padded = np.ones((1, 4, 3), np.float32)
        padded[:, 2:] = 0
        read = np.array(wrapped(keras.ops.convert_to_tensor(padded)))
        skipped = np.allclose(model(padded), model.get_layer("lstm")(read[:, :2]), atol=1e-6)
        assert skipped == bool(mask), inner


def test_an_attention_takes_the_mask_off_the_tensor_that_a_dropout_returned(tmp_path: Path) -> None:
    torch, layers = needed("torch", "torch"), keras.layers
    ids = keras.Input((4,), dtype="int32")
    embedded = layers.Embedding(7, 4, mask_zero=True)(ids)
    dropped = layers.Dropout(0.1)(embedded)
    ends = [layers.Attention()([embedded, embedded]), layers.MultiHeadAttention(2, 3)(dropped, dropped)]
    model = keras.Model(ids, ends)
    model.save(tmp_path / "masks.keras")
    rc.scaffold(tmp_path / "masks.keras", "pytorch", tmp_path / "written.py")
    scope: dict[str, Any] = {"__name__": "written"}
    exec(compile((tmp_path / "written.py").read_text(), "written.py", "exec"), scope)
    x = np.array([[1, 2, 0, 0], [3, 4, 5, 0]], np.int32)
    with torch.no_grad():
        outputs = scope["load"](str(tmp_path / "masks.keras"))(torch.tensor(x))
    for output, wanted in zip(outputs, model(x), strict=True):
        np.testing.assert_allclose(output.numpy(), np.asarray(wanted), atol=1e-6)
