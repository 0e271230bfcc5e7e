"""Models that look alike and are not: each of these once went through with wrong numbers, and nobody said so."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core.arrays import Array
from rnnconvert.models.flattening import orders
from tests.helpers.judging import close
from tests.helpers.whole_models import both, in_keras, need_both, randomise

# TensorFlow and Keras warn about their own future while they run.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


def numbers(*shape: int) -> Array:
    """Inputs of a shape, the same at every call."""
    return np.random.default_rng(5).normal(size=shape).astype(np.float32)


def line(shape: tuple[int, ...], *layers: Any) -> Any:
    """A Keras model of layers one after the other."""
    import keras

    model = keras.Sequential([keras.layers.Input(shape), *layers])
    randomise(model, 1)
    return model


def in_torch(module: Any, *inputs: Array) -> Array:
    """What a torch module makes of inputs; images come as Keras has them."""
    import torch

    tensors = [torch.from_numpy(np.moveaxis(x, -1, 1) if x.ndim == 4 else x) for x in inputs]
    with torch.no_grad():
        y = module.eval()(*tensors).numpy()
    return np.asarray(np.moveaxis(y, 1, -1) if y.ndim == 4 else y)


# Variables of Keras models --------------------------------------------------------------------------


def scaled_dense(keras: Any) -> Any:
    class Scaled(keras.layers.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.dense = keras.layers.Dense(4)

        def build(self, shape: Any) -> None:
            self.scale = self.add_weight(shape=(4,), name="scale")
            self.dense.build(shape)

        def call(self, x: Any) -> Any:
            return self.dense(x) * self.scale

    return Scaled()


def two_of_one_name(keras: Any) -> Any:
    class Two(keras.layers.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.first = keras.layers.Dense(4, name="same")
            self.second = keras.layers.Dense(4, name="same")

        def build(self, shape: Any) -> None:
            self.first.build(shape)
            self.second.build(shape)

        def call(self, x: Any) -> Any:
            return self.second(keras.ops.tanh(self.first(x)))

    return Two()


def two_weights_of_one_name(keras: Any) -> Any:
    class Two(keras.layers.Layer):
        def build(self, shape: Any) -> None:
            self.scale = self.add_weight(shape=(4,), name="w")
            self.shift = self.add_weight(shape=(4,), name="w")

        def call(self, x: Any) -> Any:
            return x * self.scale + self.shift

    return Two()


@pytest.mark.parametrize("make", [scaled_dense, two_of_one_name, two_weights_of_one_name])
def test_no_variable_of_a_keras_model_is_lost(make: Callable[[Any], Any]) -> None:
    need_both()
    import keras

    target, source = line((7, 4), make(keras)), line((7, 4), make(keras))
    randomise(target, 2)
    x = numbers(2, 7, 4)
    rc.load_into(target, source)
    assert close(in_keras(target, x), in_keras(source, x))


# How a convolution is flattened ---------------------------------------------------------------------

IMAGE = (6, 5, 4)


def called(nn: Any, forward: Callable[..., Any], **layers: Any) -> Any:
    """A torch module of layers that a function calls."""

    class Called(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name, layer in layers.items():
                setattr(self, name, layer)

        def forward(self, *x: Any) -> Any:
            return forward(self, *x)

    return Called()


def fill_and_compare(module: Any, model: Any, *inputs: Array, **options: Any) -> Any:
    randomise(model, 1)
    report = rc.load_into(module, model, **options)
    argument: Any = inputs[0] if len(inputs) == 1 else list(inputs)
    assert close(in_torch(module, *inputs), in_keras(model, argument)), report
    return report


def test_a_flattened_convolution_whose_axes_were_turned() -> None:
    k, nn = both()
    model = line(IMAGE, k.Conv2D(6, 3), k.Permute((3, 1, 2)), k.Flatten(), k.Dense(3))
    fill_and_compare(nn.Sequential(nn.Conv2d(4, 6, 3), nn.Flatten(), nn.Linear(72, 3)), model, numbers(2, *IMAGE))
    model = line(IMAGE, k.Conv2D(6, 3), k.Permute((2, 1, 3)), k.Flatten(), k.Dense(3))
    with pytest.raises(rc.TransplantError, match="does not show in which order"):
        rc.load_into(nn.Sequential(nn.Conv2d(4, 6, 3), nn.Flatten(), nn.Linear(72, 3)), model)


def test_what_turns_the_axes_in_a_sequential_is_not_overlooked() -> None:
    k, nn = both()
    turned = called(nn, lambda self, x: x.permute(0, 2, 3, 1))
    module = nn.Sequential(nn.Conv2d(4, 6, 3), turned, nn.Flatten(), nn.Linear(72, 3))
    model = line(IMAGE, k.Conv2D(6, 3), k.Flatten(), k.Dense(3))
    with pytest.raises(rc.TransplantError, match="does not show in which order"):
        rc.load_into(module, model)
    fill_and_compare(module, model, numbers(2, *IMAGE), flatten={"target": "channels_last"})


def test_a_flatten_between_two_sequentials_is_seen() -> None:
    k, nn = both()
    import keras

    module = nn.Sequential(
        nn.Sequential(nn.Conv2d(4, 6, 3), nn.ReLU()), nn.Flatten(), nn.Sequential(nn.Linear(72, 5), nn.ReLU(), nn.Linear(5, 3))
    )
    features = keras.Sequential([k.Input(IMAGE), k.Conv2D(6, 3, activation="relu")])
    model = line(IMAGE, features, k.Flatten(), k.Dense(5, activation="relu"), k.Dense(3))
    fill_and_compare(module, model, numbers(2, *IMAGE))


def test_a_normalisation_of_flattened_values_goes_with_them() -> None:
    k, nn = both()
    model = line(IMAGE, k.Conv2D(6, 3), k.Flatten(), k.BatchNormalization(), k.Dense(3))
    module = nn.Sequential(nn.Conv2d(4, 6, 3), nn.Flatten(), nn.BatchNorm1d(72, eps=1e-3), nn.Linear(72, 3))
    fill_and_compare(module, model, numbers(2, *IMAGE))
    randomise(model, 4)
    rc.load_into(model, module)
    assert close(in_keras(model, numbers(2, *IMAGE)), in_torch(module, numbers(2, *IMAGE)))


def test_a_row_that_becomes_an_image() -> None:
    k, nn = both()
    model = line((8,), k.Dense(72), k.BatchNormalization(), k.Reshape((3, 4, 6)), k.Conv2DTranspose(2, 3))
    line_ = nn.Sequential(nn.Linear(8, 72), nn.BatchNorm1d(72, eps=1e-3), nn.Unflatten(1, (6, 3, 4)), nn.ConvTranspose2d(6, 2, 3))
    x = numbers(2, 8)
    fill_and_compare(line_, model, x)
    free = called(
        nn, lambda self, x: self.conv(self.norm(self.dense(x)).view(-1, 6, 3, 4)),
        dense=nn.Linear(8, 72), norm=nn.BatchNorm1d(72, eps=1e-3), conv=nn.ConvTranspose2d(6, 2, 3),
    )  # fmt: skip
    with pytest.raises(rc.TransplantError, match="gives 72 values that seem to be cut into 6 channels"):
        rc.load_into(free, model)
    fill_and_compare(free, model, x, flatten={"target": "channels_first"})


def test_flattened_values_beside_others() -> None:
    k, nn = both()
    import keras
    import torch

    image, more = k.Input(IMAGE), k.Input((8,))
    flat = k.Flatten()(k.Conv2D(6, 3)(image))
    model = keras.Model([image, more], k.Dense(3)(k.Concatenate()([flat, k.Dense(5)(more)])))
    layers = {"conv": nn.Conv2d(4, 6, 3), "more": nn.Linear(8, 5), "out": nn.Linear(77, 3)}
    first = called(nn, lambda m, x, y: m.out(torch.cat([m.conv(x).flatten(1), m.more(y)], 1)), **layers)
    last = called(nn, lambda m, x, y: m.out(torch.cat([m.conv(x).permute(0, 2, 3, 1).flatten(1), m.more(y)], 1)), **layers)
    with pytest.raises(rc.TransplantError, match="flattened from 6 channels"):
        rc.load_into(first, model)
    with pytest.raises(rc.TransplantError, match="together with others"):
        rc.load_into(first, model, flatten={"target": "channels_first"})
    fill_and_compare(last, model, numbers(2, *IMAGE), numbers(2, 8), flatten={"target": "channels_last"})


def test_each_branch_is_flattened_from_its_own_convolution() -> None:
    k, nn = both()
    import keras
    import torch

    image = k.Input(IMAGE)
    first, second = k.Conv2D(6, 3, name="conv_one")(image), k.Conv2D(4, 3, name="conv_two")(image)
    ends = [k.Dense(3, name="one")(k.Flatten()(first)), k.Dense(2, name="two")(k.Flatten()(second))]
    model = keras.Model(image, k.Concatenate()(ends))
    module = called(
        nn, lambda m, x: torch.cat([m.one(m.conv_one(x).flatten(1)), m.two(m.conv_two(x).flatten(1))], 1),
        conv_one=nn.Conv2d(4, 6, 3), conv_two=nn.Conv2d(4, 4, 3), one=nn.Linear(72, 3), two=nn.Linear(48, 2),
    )  # fmt: skip
    fill_and_compare(module, model, numbers(2, *IMAGE), flatten={"target": "channels_first"})


def test_channels_of_several_convolutions_are_flattened_together() -> None:
    k, nn = both()
    import keras
    import torch

    image = k.Input(IMAGE)
    joined = k.Concatenate()([k.Conv2D(6, 3, name="one")(image), k.Conv2D(3, 3, name="two")(image)])
    model = keras.Model(image, k.Dense(2)(k.Flatten()(k.MaxPooling2D(2)(joined))))
    module = called(
        nn, lambda m, x: m.out(torch.max_pool2d(torch.cat([m.one(x), m.two(x)], 1), 2).flatten(1)),
        one=nn.Conv2d(4, 6, 3), two=nn.Conv2d(4, 3, 3), out=nn.Linear(18, 2),
    )  # fmt: skip
    fill_and_compare(module, model, numbers(2, *IMAGE), flatten={"target": "channels_first"})


def test_channels_first_in_keras_are_flattened_so() -> None:
    need_both()
    import keras
    import torch

    from rnnconvert.formats.keras.flow import KerasFlow
    from rnnconvert.formats.keras.model.entries import entry

    k = keras.layers
    assert torch is not None
    for flat, order in ((k.Flatten(), "channels_first"), (k.Flatten(data_format="channels_first"), "channels_last")):
        layers = [k.Conv2D(6, 3, data_format="channels_first", name="conv"), flat, k.Dense(3, name="out")]
        config = keras.Sequential([k.Input((4, 6, 5)), *layers]).get_config()
        graph = KerasFlow(entry({"class_name": "Sequential", "config": config}))
        flattened = graph.flattened("out", {"conv": 6})
        assert flattened is not None and (flattened.order, flattened.channels) == (order, 6)


# What is set beside the weights ---------------------------------------------------------------------

Make = Callable[[Any], Any]


@pytest.mark.parametrize(
    ("keras_layer", "module", "shape", "says"),
    [
        (lambda k: k.Conv1D(5, 3, padding="same"), lambda nn: nn.Conv1d(4, 5, 3, padding=1, padding_mode="circular"),
         (7, 4), "padding_mode is circular in the target and zeros in the source"),
        (lambda k: k.Embedding(9, 4), lambda nn: nn.Embedding(9, 4, max_norm=0.5), (7,), "max_norm is 0.5"),
        (lambda k: k.Conv1DTranspose(3, 3, strides=2),
         lambda nn: nn.ConvTranspose1d(4, 3, 3, stride=2, output_padding=1), (7, 4), "output_padding"),
        (lambda k: k.Conv1DTranspose(3, 2, strides=3), lambda nn: nn.ConvTranspose1d(4, 3, 2, stride=3),
         (7, 4), "output_padding"),
        (lambda k: k.LayerNormalization(rms_scaling=True), lambda nn: nn.LayerNorm(4, eps=1e-3), (7, 4), "rms_scaling"),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:You passed `rms_scaling")
def test_a_setting_that_one_framework_lacks_is_compared(keras_layer: Make, module: Make, shape: tuple[int, ...], says: str) -> None:
    need_both()
    import keras
    import torch

    model, target = line(shape, keras_layer(keras.layers)), torch.nn.Sequential(module(torch.nn))
    with pytest.raises(rc.TransplantError, match=says):
        rc.load_into(target, model)
    with pytest.raises(rc.TransplantError, match=says.split()[0]):
        rc.load_into(model, target)


def test_a_transposed_convolution_that_ends_where_its_kernel_does() -> None:
    need_both()
    import keras
    import torch

    model = line((7, 5, 4), keras.layers.Conv2DTranspose(3, 2, strides=3))
    target = torch.nn.Sequential(torch.nn.ConvTranspose2d(4, 3, 2, stride=3, output_padding=1))
    fill_and_compare(target, model, numbers(2, 7, 5, 4))


@pytest.mark.parametrize(
    ("make", "other", "shape", "says"),
    [
        (lambda k: k.Dense(4, activation=k.LeakyReLU(0.1)), lambda k: k.Dense(4, activation=k.LeakyReLU(0.5)), (4,),
         "activation is leaky_relu.0.1. in the target and leaky_relu.0.5. in the source"),
        (lambda k: k.Dense(4, activation=k.ReLU(max_value=6)), lambda k: k.Dense(4, activation="relu"), (4,), "activation"),
        (lambda k: k.BatchNormalization(axis=1), lambda k: k.BatchNormalization(), (4, 4), "axis"),
        (lambda k: k.LayerNormalization(axis=1), lambda k: k.LayerNormalization(axis=-1), (4, 4), "axis"),
        (lambda k: k.Embedding(9, 4, mask_zero=True), lambda k: k.Embedding(9, 4), (7,), "mask_zero"),
        (lambda k: k.Conv2D(4, 3, data_format="channels_last"),
         lambda k: k.Conv2D(4, 3, data_format="channels_first"), (4, 4, 4), "data_format"),
    ],
)  # fmt: skip
def test_two_keras_layers_that_look_alike(make: Make, other: Make, shape: tuple[int, ...], says: str, tmp_path: Any) -> None:
    need_both()
    import keras

    target, source = (keras.Sequential([keras.layers.Input(shape), build(keras.layers)]) for build in (make, other))
    with pytest.raises(rc.TransplantError, match=says):
        rc.load_into(target, source)
    source.save(tmp_path / "source.keras")
    with pytest.raises(rc.TransplantError, match=says):
        rc.load_into(target, tmp_path / "source.keras")


def test_one_axis_counted_from_either_end() -> None:
    need_both()
    import keras

    k = keras.layers
    target, source = line((7, 4), k.BatchNormalization(axis=2)), line((7, 4), k.BatchNormalization(axis=-1))
    assert not [difference for difference in rc.load_into(target, source).differences if difference.matters == "function"]


def test_code_of_its_own_is_noted() -> None:
    need_both()
    import keras
    import torch

    nn, k = torch.nn, keras.layers

    class Scaled(nn.Linear):
        def forward(self, x: Any) -> Any:
            return super().forward(x) * 3

    class Doubled(nn.LSTM):
        def forward(self, x: Any, state: Any = None) -> Any:
            return super().forward(x * 2, state)

    report = rc.load_into(nn.Sequential(Scaled(4, 3)), line((4,), k.Dense(3)))
    assert any("forward method of its own" in note and "Scaled" in note for note in report.notes)
    report = rc.load_into(nn.Sequential(Doubled(4, 3, batch_first=True)), line((7, 4), k.LSTM(3)))
    assert any("forward method of its own" in note and "Doubled" in note for note in report.notes)
    assert not any("of its own" in note for note in rc.load_into(nn.Linear(4, 3), line((4,), k.Dense(3))).notes)
    for hooked in (nn.LSTM(4, 3, batch_first=True), nn.Linear(4, 3)):
        hooked.register_forward_pre_hook(lambda module, inputs: (inputs[0] * 2, *inputs[1:]))
        source = line((7, 4), k.LSTM(3)) if isinstance(hooked, nn.LSTM) else line((4,), k.Dense(3))
        report = rc.load_into(nn.Sequential(hooked), source)
        assert any("runs hooks before or after it" in note for note in report.notes)


def test_masked_steps_are_noted() -> None:
    need_both()
    import keras
    import torch

    k = keras.layers
    source = line((7, 4), k.Masking(0.5), k.Dropout(0.1), k.LSTM(3))
    report = rc.load_into(torch.nn.Sequential(torch.nn.LSTM(4, 3, batch_first=True)), source)
    assert any("skips the steps that hold only 0.5" in note for note in report.notes)
    with pytest.raises(rc.TransplantError, match="masking is none in the target"):
        rc.load_into(line((7, 4), k.LSTM(3)), source)


def test_what_a_state_dictionary_does_not_say_is_noted() -> None:
    need_both()
    import keras
    import torch

    state = torch.nn.Sequential(torch.nn.Conv1d(4, 5, 3)).state_dict()
    report = rc.load_into(state, line((7, 4), keras.layers.Conv1D(5, 3, strides=2, padding="causal")))
    assert any("does not state its stride, padding" in note for note in report.notes)


# Which belongs to which -----------------------------------------------------------------------------


def test_names_that_contradict_the_flow_of_data_are_asked_about() -> None:
    need_both()
    import keras

    k = keras.layers
    source = line((4,), k.Dense(4, name="dense", activation="tanh"), k.Dense(4, name="dense_1"))
    target = line((4,), k.Dense(4, name="dense_1", activation="tanh"), k.Dense(4, name="dense"))
    with pytest.raises(rc.TransplantError, match="may be filled from"):
        rc.load_into(target, source)
    rc.load_into(target, source, {"dense_1": "dense", "dense": "dense_1"})
    assert close(in_keras(target, numbers(2, 4)), in_keras(source, numbers(2, 4)))


def test_two_views_of_one_memory_take_no_contradiction() -> None:
    need_both()
    import torch

    nn = torch.nn
    module = nn.ModuleDict({"one": nn.Linear(4, 3, bias=False), "two": nn.Linear(3, 4, bias=False)})
    module["two"].weight = nn.Parameter(module["one"].weight.detach().t())
    source = nn.ModuleDict({"one": nn.Linear(4, 3, bias=False), "two": nn.Linear(3, 4, bias=False)})
    before = module["one"].weight.detach().clone()
    with pytest.raises(rc.TransplantError, match="in the same memory as"):
        rc.load_into(module, source)
    assert torch.equal(module["one"].weight, before)
    source["two"].weight.data = source["one"].weight.detach().t().clone()
    rc.load_into(module, source)
    assert torch.equal(module["two"].weight, source["two"].weight)


# What a verification says ---------------------------------------------------------------------------


def test_states_that_are_kept_do_not_pass_for_rounding() -> None:
    need_both()
    import keras

    k = keras.layers
    target, source = (keras.Sequential([k.Input((7, 4), batch_size=2), k.LSTM(5, stateful=True), k.Dense(3)]) for _ in range(2))
    x = numbers(2, 7, 4)
    report = rc.load_into(target, source)
    in_keras(source, x)
    states = [np.array(state) for state in source.layers[0].states]
    assert report.verify(x)
    assert all(np.array_equal(state, old) for state, old in zip(source.layers[0].states, states, strict=True))
    target.layers[0].cell.kernel.assign(np.array(target.layers[0].cell.kernel) * 1.001)
    assert not report.verify(x)


def test_files_that_sort_their_names_have_no_order(tmp_path: Any) -> None:
    need_both()
    import keras
    import safetensors.torch
    import torch

    nn, k = torch.nn, keras.layers
    source = nn.Sequential(*(nn.Linear(4, 4) for _ in range(12)))
    safetensors.torch.save_file(source.state_dict(), tmp_path / "twelve.safetensors")
    target = line((4,), *(k.Dense(4) for _ in range(12)))
    rc.load_into(target, tmp_path / "twelve.safetensors")
    assert np.allclose(in_keras(target, numbers(2, 4)), in_torch(source, numbers(2, 4)), atol=1e-6)
    source = nn.ModuleDict({"second": nn.Linear(4, 4), "first": nn.Linear(4, 4)})
    safetensors.torch.save_file(source.state_dict(), tmp_path / "two.safetensors")
    with pytest.raises(rc.TransplantError, match="is alphabetical and does not show"):
        rc.load_into(line((4,), k.Dense(4), k.Dense(4)), tmp_path / "two.safetensors")
    report = rc.load_into(line((4,), k.Dense(4), k.Dense(4)), tmp_path / "two.safetensors", trust_order=True)
    assert sum("in alphabetical order alone" in note for note in report.notes) == 2


def test_a_layer_of_the_users_own_is_none_of_keras(tmp_path: Any) -> None:
    need_both()
    import keras
    import torch

    class Dense(keras.layers.Dense):
        def call(self, x: Any) -> Any:
            return super().call(x) * 2

    source = line((4,), Dense(3))
    source.save(tmp_path / "own.keras")
    for origin in (source, tmp_path / "own.keras"):
        with pytest.raises(rc.TransplantError, match="nothing in the source fits"):
            rc.load_into(torch.nn.Sequential(torch.nn.Linear(4, 3)), origin)


def test_weights_that_cannot_be_written_are_refused_before_anything_is() -> None:
    need_both()
    import torch

    nn, source = torch.nn, torch.nn.Linear(4, 3)
    with torch.inference_mode():
        target = nn.Linear(4, 3)
    with pytest.raises(rc.TransplantError, match="inference_mode"):
        rc.load_into(target, source)
    expanded = nn.Linear(4, 3)
    expanded.weight = nn.Parameter(torch.zeros(1, 4).expand(3, 4))
    with pytest.raises(rc.TransplantError, match="is expanded"):
        rc.load_into(expanded, source)


def test_ties_may_hold_what_is_no_number() -> None:
    need_both()
    import torch

    nn = torch.nn
    target = nn.ModuleDict({"one": nn.Linear(4, 4), "two": nn.Linear(4, 4)})
    source = nn.ModuleDict({"one": nn.Linear(4, 4), "two": nn.Linear(4, 4)})
    target["two"].weight = target["one"].weight
    source["one"].weight.data[0, 0] = float("nan")
    source["two"].weight.data = source["one"].weight.data.clone()
    rc.load_into(target, source)
    assert bool(target["one"].weight[0, 0].isnan())


def test_a_state_dictionary_cannot_be_run() -> None:
    need_both()
    import torch

    report = rc.load_into(torch.nn.Linear(4, 3).state_dict(), torch.nn.Linear(4, 3))
    with pytest.raises(rc.UsageError, match="without code"):
        report.verify(numbers(2, 4))


def test_what_no_model_shows_is_noted() -> None:
    need_both()
    import flax.linen as fl
    import jax
    import jax.numpy as jnp
    import torch

    nn = torch.nn

    class Joined(fl.Module):
        @fl.compact
        def __call__(self, x: Any, y: Any) -> Any:
            flat = fl.Conv(6, (3, 3), padding="VALID", name="conv")(x).reshape(len(x), -1)
            return fl.Dense(3, name="out")(jnp.concatenate([flat, fl.Dense(5, name="more")(y)], 1))

    class Cut(fl.Module):
        @fl.compact
        def __call__(self, x: Any) -> Any:
            return fl.Conv(2, (3, 3), padding="VALID")(fl.Dense(72)(x).reshape(len(x), 3, 4, 6))

    tree = Joined().init(jax.random.key(0), numbers(2, *IMAGE), numbers(2, 8))
    layers = {"conv": nn.Conv2d(4, 6, 3), "more": nn.Linear(8, 5), "out": nn.Linear(77, 3)}
    report = rc.load_into(called(nn, lambda m, x, y: None, **layers), tree)
    assert any("reads 77 values, which no single layer gives" in note for note in report.notes)
    x = numbers(2, 4)
    tree = Cut().init(jax.random.key(0), x)
    module = called(nn, lambda m, x: m.conv(m.dense(x).view(-1, 6, 3, 4)), dense=nn.Linear(4, 72), conv=nn.Conv2d(6, 2, 3))
    with pytest.raises(rc.TransplantError, match="neither torch Called nor flax dict shows in which order"):
        rc.load_into(module, tree)
    rc.load_into(module, tree, flatten={"target": "channels_first", "source": "channels_last"})
    assert close(in_torch(module, x), np.asarray(Cut().apply(tree, x)))


def test_a_sequential_with_a_forward_of_its_own_shows_no_order() -> None:
    need_both()
    import keras
    import torch

    class Reversed(torch.nn.Sequential):
        def forward(self, x: Any) -> Any:
            for layer in reversed(list(self)):
                x = layer(x)
            return x

    module = Reversed(OrderedDict(one=torch.nn.Linear(4, 4), two=torch.nn.Linear(4, 4)))
    source = line((4,), keras.layers.Dense(4, name="first"), keras.layers.Dense(4, name="second"))
    with pytest.raises(rc.TransplantError, match="may be filled from"):
        rc.load_into(module, source)


@pytest.mark.filterwarnings("ignore:The object being serialized includes a `lambda`")
def test_one_function_in_two_spellings() -> None:
    need_both()
    import keras

    k = keras.layers
    rc.load_into(line((4,), k.Dense(3, activation=k.ReLU())), line((4,), k.Dense(3, activation="relu")))
    rc.load_into(line((4,), k.Dense(3, activation="silu")), line((4,), k.Dense(3, activation=keras.activations.swish)))
    first, second = (line((4,), k.Dense(3, activation=f)) for f in (lambda x: x * 2, lambda x: x * 3))
    with pytest.raises(rc.TransplantError, match="activation"):
        rc.load_into(first, second)


def test_a_function_that_changed_its_meaning_between_versions(tmp_path: Any) -> None:
    need_both()
    import h5py
    import keras

    source = line((4,), keras.layers.Dense(3, activation="hard_sigmoid"))
    source.save(tmp_path / "old.h5")
    rc.load_into(line((4,), keras.layers.Dense(3, activation="hard_sigmoid")), tmp_path / "old.h5")
    with h5py.File(tmp_path / "old.h5", "r+") as file:
        file.attrs["keras_version"] = file["model_weights"].attrs["keras_version"] = "2.11.0"
    with pytest.raises(rc.TransplantError, match="activation is hard_sigmoid"):
        rc.load_into(line((4,), keras.layers.Dense(3, activation="hard_sigmoid")), tmp_path / "old.h5")


def test_nothing_flattened_does_not_go_against_what_a_model_shows() -> None:
    k, nn = both()
    model = line(IMAGE, k.Conv2D(6, 3), k.Flatten(), k.Dense(3))
    module = called(nn, lambda m, x: m.out(m.conv(x).flatten(1)), conv=nn.Conv2d(4, 6, 3), out=nn.Linear(72, 3))
    with pytest.raises(rc.TransplantError, match="flatten='none' says that nothing is flattened"):
        rc.load_into(module, model, flatten="none")


def test_an_answer_counts_for_the_side_that_it_names() -> None:
    """Neither a torch module with a forward method of its own nor flax's tree shows an order: each is asked for by itself."""
    need_both()
    import torch

    nn = torch.nn
    layers = {"conv": nn.Conv2d(4, 6, 3), "out": nn.Linear(72, 3)}
    first = called(nn, lambda m, x: m.out(m.conv(x).flatten(1)), **layers)
    last = called(nn, lambda m, x: m.out(m.conv(x).permute(0, 2, 3, 1).flatten(1)), conv=nn.Conv2d(4, 6, 3), out=nn.Linear(72, 3))
    x = torch.from_numpy(numbers(2, *IMAGE)).permute(0, 3, 1, 2)
    rc.load_into(last, first)  # of one framework: as the numbers stand
    assert not torch.allclose(last(x), first(x), atol=1e-5)
    rc.load_into(last, first, flatten={"target": "channels_last", "source": "channels_first"})
    assert torch.allclose(last(x), first(x), atol=1e-5)
    rc.load_into(last, first, flatten="target=channels_last,source=channels_first")
    assert torch.allclose(last(x), first(x), atol=1e-5)
    with pytest.raises(rc.TransplantError, match=r"does not show in which order. Give it with flatten={'source': "):
        rc.load_into(last, first, flatten={"target": "channels_last"})


@pytest.mark.parametrize("clear", ["target", "source"])
def test_an_answer_for_a_side_that_shows_another_order_is_refused(clear: str) -> None:
    k, nn = both()
    model = line(IMAGE, k.Conv2D(6, 3), k.Flatten(), k.Dense(3))
    module = called(nn, lambda m, x: m.out(m.conv(x).flatten(1)), conv=nn.Conv2d(4, 6, 3), out=nn.Linear(72, 3))
    pair = (model, module) if clear == "target" else (module, model)
    hidden = "source" if clear == "target" else "target"
    rc.load_into(*pair, flatten={hidden: "channels_first"})
    rc.load_into(*pair, flatten={hidden: "channels_first", clear: "channels_last"})
    with pytest.raises(rc.TransplantError, match=f"Leave '{clear}' out of flatten"):
        rc.load_into(*pair, flatten={"target": "channels_first", "source": "channels_first"})
    with pytest.raises(rc.TransplantError, match=f"Give it with flatten={{'{hidden}': "):
        rc.load_into(*pair, flatten={clear: "channels_last"})


def test_an_order_of_no_side_is_refused() -> None:
    with pytest.raises(rc.UsageError, match="does not name a side"):
        orders("channels_last")
    with pytest.raises(rc.UsageError, match="names a side twice"):
        orders("target=channels_last,target=channels_first")
