"""Whole models as layers models of TensorFlow.js, where it has ways of its own.

tests/scaffolding/test_whole_targets.py has what all formats share.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import rnnconvert as rc
from rnnconvert.cli.main import main
from rnnconvert.files import weight_groups
from rnnconvert.formats.tfjs import export_graph
from rnnconvert.formats.tfjs.export_tables import FUNCTIONS
from rnnconvert.formats.tfjs.run import NodeJs, encoded
from tests.helpers.drawn import each
from tests.helpers.exported import RUNS, in_tensorflow
from tests.helpers.frameworks import let_node_find_tfjs
from tests.helpers.random_models import fill
from tests.helpers.requirements import needed

pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Layer .* was passed an input with a mask:UserWarning"),
    pytest.mark.filterwarnings("ignore:::torch"),
]


def exported(model: Any, folder: Path, **options: Any) -> Any:
    """What became of a Keras model, which both frameworks ran."""
    let_node_find_tfjs()
    fill(model, 4)
    model.save(folder / "source.keras")
    return rc.export_model(folder / "source.keras", folder / "model.json", format="tfjs", force=True, verify=True, **options)


def equal_models(k: Any) -> dict[str, Callable[[], Any]]:
    a = k.layers

    def encoder_and_decoder() -> Any:
        read, written = k.Input((None, 3), name="read"), k.Input((None, 2), name="written")
        _, *states = a.LSTM(4, return_state=True)(a.Dense(3)(read))
        return k.Model([read, written], a.Dense(2)(a.LSTM(4, return_sequences=True)(written, initial_state=states)))

    def every_output() -> Any:
        x = k.Input((None, 3), name="in put")
        y, h, c = a.LSTM(4, return_sequences=True, return_state=True)(x)
        return k.Model(x, [y, h, c, h, x])

    def both_apart() -> Any:
        x = k.Input((None, 3))
        ahead, back, *states = a.Bidirectional(a.LSTM(4, return_state=True), merge_mode=None)(a.Dense(3)(x))
        return k.Model(x, [a.Add()([ahead, back]), *states])

    def one_layer_twice() -> Any:
        x, shared = k.Input((None, 3)), a.LSTM(3, return_sequences=True)
        return k.Model(x, a.Add()([shared(x), shared(shared(x))]))

    def one_tensor_twice() -> Any:
        x = k.Input((None, 3))
        y = a.Dense(4)(x)
        return k.Model(x, [a.Add()([y, y]), a.Multiply()([y, a.Activation("tanh")(y)])])

    def inside() -> Any:
        start = k.Input((None, 3))
        inner = k.Model(start, a.Subtract()([a.Dense(3)(start), start]), name="inner")
        x = k.Input((None, 3))
        return k.Model(x, a.LSTM(2)(inner(inner(x))))

    def attending() -> Any:
        x = k.Input((None, 3))
        return k.Model(x, a.LSTM(2)(a.Attention()([a.Dense(3)(x), x])))

    def masks() -> list[Any]:
        embedding = a.Embedding(9, 5, mask_zero=True)
        return [k.Input((None,), dtype="int32"), embedding, a.Dense(4), a.GRU(4, return_sequences=True, reset_after=False)]

    both = a.Bidirectional(a.LSTM(3, return_sequences=True))
    return {
        "an encoder and a decoder": encoder_and_decoder, "outputs of one layer": every_output, "directions apart": both_apart,
        "one layer called twice": one_layer_twice, "one tensor read twice": one_tensor_twice, "a model in a model": inside,
        "attention": attending,
        "stateful": lambda: k.Sequential([k.Input(batch_shape=(2, None, 3)), a.LSTM(4, stateful=True), a.Dense(2)]),
        "a causal convolution": lambda: k.Sequential([k.Input((None, 3)), a.Conv1D(4, 3, padding="causal", dilation_rate=2), a.LSTM(2)]),
        "a masked input": lambda: k.Sequential([k.Input((None, 3)), a.Masking(0.0), a.LSTM(4, return_sequences=True), a.LSTM(2)]),
        "masks and pools": lambda: k.Sequential([*masks(), a.GlobalMaxPooling1D()]),
        "masks in both directions": lambda: k.Sequential([*masks(), both, a.Dense(4), a.LSTM(3)]),
        "masks from the end": lambda: k.Sequential([*masks(), a.LSTM(3, go_backwards=True)]),
    }  # fmt: skip


def test_models_give_what_keras_gives(tmp_path: Path) -> None:
    models = equal_models(needed("keras", "keras"))

    def check(name: str) -> None:
        assert exported(models[name](), tmp_path).equal

    each(models, check)


def refused_models(k: Any) -> dict[str, tuple[Callable[[], Any], str]]:
    a = k.layers

    def beside_a_mask() -> Any:
        x, y = k.Input((None, 3)), k.Input((None, 3))
        return k.Model([x, y], a.Add()([a.LSTM(3)(a.Masking()(x)), a.LSTM(3)(y)]))

    def of_another() -> Any:
        x, y = k.Input((None, 3)), k.Input((None, 3))
        return k.Model([x, y], a.LSTM(3)(a.Add()([a.Masking()(x), a.Masking()(y)])))

    def sequence(*layers: Any) -> Callable[[], Any]:
        return lambda: k.Sequential([k.Input((None, 3)), *layers])

    return {
        "a layer without a mask beside one": (beside_a_mask, "hands the mask or the states of the layer that ran before"),
        "a mask of several": (of_another, "a mask of another tensor"),
        "zeros": (sequence(a.Masking(), a.Bidirectional(a.LSTM(3, return_sequences=True)), a.GlobalMaxPooling1D()), "zeros at the steps"),
        "a mean": (sequence(a.Masking(), a.GlobalAveragePooling1D()), "GlobalAveragePooling1D with a mask"),
        "a GRU": (sequence(a.GRU(3)), "the reset gate after the product"),
        "heads": (lambda: k.Model(x := k.Input((4, 6)), a.MultiHeadAttention(2, 3)(x, x)), "'multi_head'"),
    }


LAYERS = ["form=layers"]


def test_what_layers_lack_is_refused_by_name(tmp_path: Path) -> None:
    models = refused_models(needed("keras", "keras"))

    def check(name: str) -> None:
        make, words = models[name]
        with pytest.raises(rc.RefusedError, match=words) as caught:
            exported(make(), tmp_path, settings=LAYERS)
        assert caught.value.layer and "This model can be written for" in str(caught.value)
        assert [path.name for path in tmp_path.iterdir()] == ["source.keras"]

    each(models, check)


def test_what_layers_lack_is_a_graph(tmp_path: Path) -> None:
    models = refused_models(needed("keras", "keras"))

    def check(name: str) -> None:
        make, words = models[name]
        done = exported(make(), tmp_path)
        assert done.equal and re.search(words, done.notes[-3]) and "loadGraphModel" in done.notes[-2]

    each(models, check)


def test_a_graph_in_another_runtime_and_with_tensors_that_do_not_stay(tmp_path: Path) -> None:
    """TensorFlow runs the nodes that TensorFlow.js runs, and a call leaves no tensors behind but what it gives."""
    k = needed("keras", "keras")
    a = k.layers
    layers = [a.Embedding(9, 5, mask_zero=True), a.Bidirectional(a.GRU(4, return_sequences=True)), a.LSTM(3), a.Dense(2)]
    model = k.Sequential([k.Input((None,), dtype="int32"), *layers])
    assert exported(model, tmp_path).equal
    x = np.array([[1, 2, 3, 0, 0], [4, 5, 6, 7, 8]], np.int32)
    expected = k.ops.convert_to_numpy(model(x))
    np.testing.assert_allclose(in_tensorflow(tmp_path / "model.json")([x])[0], expected, atol=1e-6)
    with NodeJs(str(tmp_path / "model.json")) as node:
        alive = []
        for _ in range(3):
            node.ask("run", inputs=[encoded(x)])
            alive.append(node.ask("alive"))
    assert len(set(alive)) == 1


def test_a_gru_with_the_reset_gate_after_a_diagonal_product_is_one_with_it_before(tmp_path: Path) -> None:
    k = needed("keras", "keras")
    let_node_find_tfjs()
    model = k.Sequential([k.Input((None, 3)), k.layers.GRU(4, name="gru"), k.layers.Dense(2)])
    fill(model, 2)
    kernel, recurrent, bias = (np.array(weight) for weight in model.get_layer("gru").get_weights())
    recurrent[:, 8:] *= np.eye(4)
    bias[1, 8:] = 0
    model.get_layer("gru").set_weights([kernel, recurrent, bias])
    model.save(tmp_path / "source.keras")
    assert rc.export_model(tmp_path / "source.keras", tmp_path / "model.json", format="tfjs", settings=LAYERS, verify=True).equal


def test_weights_alone_and_other_sources(tmp_path: Path) -> None:
    torch = needed("torch", "torch")
    let_node_find_tfjs()
    layers = torch.nn.ModuleDict({"lstm": torch.nn.LSTM(1, 8), "fc": torch.nn.Linear(8, 1)})
    torch.save(layers.state_dict(), tmp_path / "weights.pt")
    sources = [tmp_path / "weights.pt", tmp_path / "model.onnx", tmp_path / "amp.json"]
    for source in sources[1:]:
        rc.export_model(sources[0], source, chain="lstm mish fc" if source.suffix == ".onnx" else "lstm fc")
    for source in sources:
        chain = "lstm fc" if source is sources[0] else None
        done = rc.export_model(source, tmp_path / "model.json", format="tfjs", chain=chain, force=True, verify=chain is None)
        assert done.equal == (chain is None) and len(done.layers) == 1, source


def test_numbers_in_double_precision_are_rounded_and_a_note_says_so(tmp_path: Path) -> None:
    torch = needed("torch", "torch")
    layers = torch.nn.ModuleDict({"lstm": torch.nn.LSTM(2, 3), "fc": torch.nn.Linear(3, 1)}).double()
    torch.save(layers.state_dict(), tmp_path / "weights.pt")
    done = rc.export_model(tmp_path / "weights.pt", tmp_path / "model.json", format="tfjs", chain="lstm fc")
    manifest = json.loads((tmp_path / "model.json").read_bytes())["weightsManifest"]
    np.testing.assert_array_equal(
        weight_groups.read(tmp_path / "model.json", manifest)[0]["fc/kernel"], layers["fc"].weight.detach().numpy().T.astype(np.float32)
    )
    assert any("rounded to float32" in note for note in done.notes)


def test_parts_of_a_tensor_are_refused_by_name(tmp_path: Path) -> None:
    """By whoever lists the formats that hold a model, too."""
    torch = needed("torch", "torch")

    class Gated(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = torch.nn.LSTM(3, 4, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            first, second = self.rnn(x)[0].chunk(2, dim=-1)
            return first * torch.sigmoid(second)

    torch.jit.script(Gated().eval()).save(str(tmp_path / "gated.pt"))
    with pytest.raises(rc.RefusedError, match="This model can be written for c_header, coreml, ncnn, onnx, openvino, tfjs or tflite"):
        rc.export_model(tmp_path / "gated.pt", tmp_path / "model.json", format="rtneural", axes=3)
    with pytest.raises(rc.RefusedError, match="TensorFlow"):
        rc.export_model(tmp_path / "gated.pt", tmp_path / "model.json", format="tfjs", axes=3, settings=["form=layers"])


def test_its_own_name_is_its_format(tmp_path: Path) -> None:
    k = needed("keras", "keras")
    source, out = tmp_path / "source.keras", tmp_path / "model.json"
    k.Sequential([k.Input((None, 1)), k.layers.LSTM(8, return_sequences=True), k.layers.Dense(1)]).save(source)
    result = CliRunner().invoke(main, ["export", str(source), str(out)])
    assert result.exit_code == 0 and json.loads(out.read_bytes())["format"] == "layers-model"
    assert CliRunner().invoke(main, ["export", str(source), str(tmp_path / "other.json")]).exit_code == 0
    assert json.loads((tmp_path / "other.json").read_bytes())["in_shape"]  # RTNeural's, as before


def test_a_file_and_its_numbers_take_their_places_together(tmp_path: Path) -> None:
    k = needed("keras", "keras")
    source, out = tmp_path / "source.keras", tmp_path / "model.json"
    for seed in (1, 2):
        model = k.Sequential([k.Input((None, 2)), k.layers.LSTM(3), k.layers.Dense(1)])
        fill(model, seed)
        model.save(source)
        rc.export_model(source, out, format="tfjs", force=True)
        (named,) = json.loads(out.read_bytes())["weightsManifest"][0]["paths"]
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted([source.name, out.name, named])
    (output,) = RUNS["json"](out)([np.ones((1, 4, 2), np.float32)])
    np.testing.assert_allclose(output, np.asarray(model(np.ones((1, 4, 2), np.float32))), atol=1e-6)


def test_its_functions_are_those_of_keras(tmp_path: Path) -> None:
    k = needed("keras", "keras")
    x = k.Input((None, 3))
    names = [name for name in FUNCTIONS if name != "mish"]  # which Keras's layers are not read with; ONNX's are, below
    behind = [k.layers.Dense(4, activation=name)(x) for name in names]
    alone = [k.layers.Activation(name)(x) for name in (*names, "hard_sigmoid")]
    assert exported(k.Model(x, [*behind, *alone]), tmp_path).equal


def test_masks_of_a_model_called_twice_are_not_taken_for_one(tmp_path: Path) -> None:
    k = needed("keras", "keras")
    start = k.Input((None,), dtype="int32")
    inner = k.Model(start, k.layers.Embedding(9, 3, mask_zero=True)(start), name="inner")
    first, second = k.Input((None,), dtype="int32"), k.Input((None,), dtype="int32")
    model = k.Model([first, second], k.layers.Add()([k.layers.LSTM(3)(inner(first)), k.layers.LSTM(3)(inner(second))]))
    with pytest.raises(rc.RefusedError, match="called twice"):
        exported(model, tmp_path, settings=LAYERS)


def test_without_the_refusal_a_mask_reaches_a_layer_that_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    k = needed("keras", "keras")
    x, y = k.Input((None, 3)), k.Input((None, 3))
    model = k.Model([x, y], [k.layers.LSTM(3)(k.layers.Masking()(x)), k.layers.LSTM(3)(y)])
    monkeypatch.setattr(export_graph, "refusals", lambda m: [])
    with pytest.raises(rc.NotEqualError):
        exported(model, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["source.keras"]
