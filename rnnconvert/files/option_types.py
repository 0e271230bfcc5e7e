"""The options of `load`, `save` and `convert`, as types: a misspelt keyword is found before the program runs.

docs/generate.py makes this module from rnnconvert.files.options and the formats' own data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypedDict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rnnconvert.files.summary import Progress

# fmt: off

NamedArrays = Literal[
    "arraymancer", "brainjs", "burn", "c_header", "chainer", "coreml", "coreml_nn", "dl4j", "dynet", "equinox", "flax", "fluid",
    "flux", "ggml", "guitarml", "haiku", "haste", "keras", "knet", "lasagne", "lux", "madmom", "mlx", "mxnet", "nam", "ncnn",
    "nnx", "onednn", "onnx", "openvino", "paddle", "persistent_rnn", "pytorch", "rtneural", "tensorflow1", "tesseract", "tfjs",
    "tflite", "torch7", "tutorials",
]
"""The formats whose layers are arrays by name; every other one is one flat vector."""


class _Shared(TypedDict, total=False):
    """Options that decide how a file is read, and how one is written."""

    bias_mode: Literal["double", "double!", "none", "none!", "single_inp", "single_inp!", "single_rec", "single_rec!"]
    layout: str


class _Stated(_Shared, total=False):
    """Options that decide how a file is read."""

    activation: str
    arrays: str
    bidirectional: Literal["true", "true!", "false", "false!"] | bool
    cell: Literal["lstm", "lstm!", "gru", "gru!", "rnn_tanh", "rnn_tanh!", "rnn_relu", "rnn_relu!"]
    cell_clip: float | str
    clip: Literal["none", "none!"]
    config: str
    fc: str
    forget_bias: float | str
    go_backwards: Literal["true", "true!", "false", "false!"] | bool
    hard_sigmoid: Literal["keras2", "keras2!", "keras3", "keras3!"]
    hidden_size: int | str
    init_state: Literal["ones", "ones!", "zeros", "zeros!"]
    input_forget: Literal["f", "f!", "i", "i!", "none", "none!"]
    input_mode: Literal["linear", "linear!", "skip", "skip!"]
    input_scale: float | str
    input_size: int | str
    merge_mode: Literal["concat", "concat!", "sum", "sum!", "mul", "mul!", "ave", "ave!", "none", "none!"]
    nonlinearity: str
    num_layers: int | str
    origin_mode: Literal["true", "true!", "false", "false!"] | bool
    output_activation: Literal["sigmoid", "sigmoid!", "tanh", "tanh!", "relu", "relu!", "linear", "linear!"]
    proj_clip: float | str
    projection_size: int | str
    recurrent_activation: str
    release: Literal["0.1", "0.1!", "0.2", "0.2!"]
    reparametrised: Literal["weight_norm", "weight_norm!"]
    reset_after: Literal["true", "true!", "false", "false!"] | bool
    unaccounted: Literal["harmless", "harmless!"]


class ReadOptions(_Stated, total=False):
    """Options that decide how a file is read, by itself."""

    dtype: Literal["float16", "float16!", "bfloat16", "bfloat16!", "float32", "float32!", "float64", "float64!"]


class SourceOptions(ReadOptions, total=False):
    """Options that decide how a file is read: its format, and options in words, too."""

    source_format: str | None
    settings: Iterable[str]


class WriteOptions(_Shared, total=False):
    """Options that decide how a file is written."""

    batch_first: Literal["true", "false"] | bool
    between: Literal["nothing"]
    directions: Literal["split"]
    external_data: Literal["true", "false"] | bool
    form: Literal["layers", "graph"]
    initial_state: Literal["call"]
    input_batch: int | str
    merge: Literal["concat"]
    module: Literal["stack", "cell", "optimized", "flat", "gates"]
    opset: int | str
    output_order: Literal["time"]
    prefix: str
    return_state: Literal["true", "false"] | bool
    reverse: Literal["flipped"]
    sample_rate: int | str
    samplerate: int | str
    sequence_lens: Literal["true", "false"] | bool
    stack: Literal["join", "split"]
    states: Literal["input", "stream", "zeros"]
    steps: int | str
    storage: Literal["float", "int8"]


class SaveOptions(WriteOptions, total=False):
    """Options that decide how a file is written: what `save` takes."""

    dtype: str | None
    strict: bool
    force: bool
    dry_run: bool
    progress: Progress | None


class ConversionOptions(_Stated, SaveOptions, total=False):
    """Options that decide a conversion: how its source is read, and its target written."""
