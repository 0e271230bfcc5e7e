"""Nets of ncnn as sources of whole models: what is written gives what ncnn gives, sequence by sequence, or a layer is refused by name."""

from __future__ import annotations

import itertools
import math
import random
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core.arrays import Array
from rnnconvert.core.errors import RefusedError
from rnnconvert.formats.ncnn.operators import _RULES
from tests.formats.ncnn.test_whole_ncnn import as_net, layers
from tests.helpers import drawn
from tests.helpers.drawn import NotComparedError, each
from tests.helpers.exported import FRAMEWORKS_WARN, RUNS
from tests.helpers.requirements import needed

pytestmark = FRAMEWORKS_WARN

Numbers = Sequence[tuple[bool, Array]]


def full(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).uniform(-0.5, 0.5, shape).astype(np.float32)


def net(folder: Path, rows: Sequence[str], numbers: Numbers = (), half: bool = False) -> Path:
    """A net as text, with its numbers: those with a tag in front in float16, where asked."""
    path, parts = folder / "m.param", list[bytes]()
    for tagged, array in numbers:
        held = array.astype(np.float16) if tagged and half else array
        parts.append((0x01306B47 if tagged and half else 0).to_bytes(4, "little") * tagged + held.tobytes() + bytes(-held.nbytes % 4))
    blobs = sum(int(row.split()[3]) for row in rows)
    path.write_text("\n".join(["7767517", f"{len(rows)} {blobs}", *rows, ""]))
    path.with_suffix(".bin").write_bytes(b"".join(parts))
    return path


def by_ncnn(path: Path, inputs: dict[str, Array], outputs: Sequence[str]) -> list[Array] | None:
    """What ncnn gives for a batch of inputs, one after the other, in float32; None where it does not load or run the net."""
    ncnn = needed("ncnn", "ncnn")
    loaded = ncnn.Net()
    for option in ("fp16_packed", "fp16_storage", "fp16_arithmetic", "bf16_storage", "packing_layout"):
        setattr(loaded.opt, f"use_{option}", False)
    loaded.opt.num_threads = 1
    if loaded.load_param(str(path)) or loaded.load_model(str(path.with_suffix(".bin"))):
        return None
    results: list[list[Array]] = [[] for _ in outputs]
    for number in range(len(next(iter(inputs.values())))):
        run = loaded.create_extractor()
        run.set_light_mode(False)
        for name, array in inputs.items():
            run.input(name, ncnn.Mat(np.ascontiguousarray(array[number])).clone())
        for name, rows in zip(outputs, results, strict=True):
            status, value = run.extract(name)
            if status:
                return None
            rows.append(np.array(value))
    return [np.stack(rows) for rows in results]


def by_onnx(path: Path, inputs: Sequence[Array]) -> list[Array]:
    """What the net gives that rnnconvert writes as ONNX."""
    onnxruntime = needed("onnxruntime", "onnxruntime")
    rc.export_model(path, path.with_suffix(".onnx"), force=True)
    session = onnxruntime.InferenceSession(str(path.with_suffix(".onnx")))
    return list(session.run(None, {each.name: array for each, array in zip(session.get_inputs(), inputs, strict=True)}))


def agree(path: Path, x: Array, outputs: Sequence[str]) -> None:
    truth = by_ncnn(path, {"x": x}, outputs)
    assert truth is not None
    for value, expected in zip(by_onnx(path, [x]), truth, strict=True):
        assert value.shape == expected.shape
        np.testing.assert_allclose(value, expected, rtol=2e-4, atol=2e-5)


def rnn(below: str, width: int, above: str, units: int = 5) -> tuple[str, Numbers]:
    """A GRU in both directions, and its numbers."""
    arrays = [full(n, *shape) for n, shape in enumerate(((2, 3 * units, width), (2, 4 * units), (2, 3 * units, units)))]
    return f"GRU rnn 1 1 {below} {above} 0={units} 1={6 * units * width} 2=2", [(True, array) for array in arrays]


# Each layer, and each of its parameters ----------------------------------------------------------------------


SPECIMENS = """
4x6: AbsVal | BNLL | CELU 0=0.7 | CELU | Clip 0=-0.1 1=0.3 | Clip 1=0.2 | Dropout | Dropout 0=0.5 | ELU | ELU 0=0.4 | Erf | Exp
4x6: Exp 0=2.0 1=0.5 2=0.25 | GELU | GELU 0=1 | HardSigmoid | HardSigmoid 0=0.3 1=0.4 | HardSwish
4x6: HardSwish 0=1.6666667e-1 1=0.5 | Log 1=0.1 2=3.0 | Log 0=2.0 2=9.0 | Mish | Noop | Packing | Power 0=2.0 1=0.5 2=0.5
4x6: ReLU | ReLU 0=0.2 | SELU | Sigmoid | Softplus | Swish | TanH | Threshold 0=0.1 | Softmax 0=0 | Softmax 0=1 1=1
4x6: Softmax 0=-1 1=1 | CumulativeSum 0=0 | CumulativeSum 0=-1 | GLU 0=0 | GLU 0=1 | Flatten | Flip -23300=1,0
4x6: Flip -23300=2,0,-1 | Permute 0=1 | Permute 0=0 | ExpandDims -23303=1,0 | ExpandDims -23303=2,0,-1 | Tile 0=1 1=3
4x6: Tile -23302=2,2,1 | Reshape 0=3 1=-1 | Reshape 0=0 1=1 2=-1 | Reshape 0=24 | Reshape 0=2 1=3 2=4 | Squeeze -23303=1,0
4x6: Crop -23309=1,1 -23310=1,3 -23311=1,0 | Crop -23309=1,-3 -23310=1,-1 -23311=1,1
4x6: Crop -23309=2,1,0 -23310=2,-233,2 -23311=2,-1,0 | Crop 0=1 1=2 3=3 4=-233 | Crop 0=1 3=-233 4=-233 6=2 7=1
4x6: Padding 0=1 1=2 2=0 3=3 5=0.5 | Padding 2=1 3=2 4=1 | Padding 2=1 3=2 4=2 | Cast 0=1 1=1 | UnaryOp 0=0 | UnaryOp 0=1
4x6: UnaryOp 0=2 | UnaryOp 0=3 | UnaryOp 0=4 | UnaryOp 0=7 | UnaryOp 0=9 | UnaryOp 0=10 | UnaryOp 0=11 | UnaryOp 0=14
4x6: UnaryOp 0=15 | UnaryOp 0=16 | UnaryOp 0=18 | UnaryOp 0=20 | UnaryOp 0=22 | UnaryOp 0=24 | BinaryOp 0=0 1=1 2=1.5
4x6: BinaryOp 0=1 1=1 2=1.5 | BinaryOp 0=2 1=1 2=1.5 | BinaryOp 0=3 1=1 2=1.5 | BinaryOp 0=4 1=1 2=1.5 | BinaryOp 0=5 1=1 2=1.5
4x6: BinaryOp 0=7 1=1 2=1.5 | BinaryOp 0=8 1=1 2=1.5 | BinaryOp 0=9 1=1 2=1.5 | BinaryOp 0=15 1=1 2=1.5
4x6: BinaryOp 0=16 1=1 2=1.5 | Reduction 0=0 1=0 -23303=1,0 4=0 5=1 2=0.5 | Reduction 0=0 1=0 -23303=1,0 4=1 5=1 2=0.5
4x6: Reduction 0=1 1=0 -23303=1,0 4=0 5=1 2=0.5 | Reduction 0=1 1=0 -23303=1,0 4=1 5=1 2=0.5
4x6: Reduction 0=2 1=0 -23303=1,0 4=0 5=1 2=0.5 | Reduction 0=2 1=0 -23303=1,0 4=1 5=1 2=0.5
4x6: Reduction 0=3 1=0 -23303=1,0 4=0 5=1 2=0.5 | Reduction 0=3 1=0 -23303=1,0 4=1 5=1 2=0.5
4x6: Reduction 0=4 1=0 -23303=1,0 4=0 5=1 2=0.5 | Reduction 0=4 1=0 -23303=1,0 4=1 5=1 2=0.5
4x6: Reduction 0=5 1=0 -23303=1,0 4=0 5=1 2=0.5 | Reduction 0=5 1=0 -23303=1,0 4=1 5=1 2=0.5
4x6: Reduction 0=6 1=0 -23303=1,0 4=0 5=1 2=0.5 | Reduction 0=6 1=0 -23303=1,0 4=1 5=1 2=0.5
4x6: Reduction 0=7 1=0 -23303=1,0 4=0 5=1 2=0.5 | Reduction 0=7 1=0 -23303=1,0 4=1 5=1 2=0.5
4x6: Reduction 0=8 1=0 -23303=1,0 4=0 5=1 2=0.5 | Reduction 0=8 1=0 -23303=1,0 4=1 5=1 2=0.5 | Reduction 0=3
4x6: Reduction 0=0 1=0 -23303=2,0,1 5=1 | Reduction 0=4 4=1 | Reduction 0=3 1=0 -23303=1,-1 5=1 | Pooling1D 0=0 1=2 2=2 5=1
4x6: Pooling1D 0=0 1=3 2=1 3=1 5=1 | Pooling1D 0=1 1=3 2=2 3=1 14=1 5=1 | Pooling1D 0=1 1=3 2=2 3=1 14=1 5=1 6=1
4x6: Pooling1D 0=0 1=3 2=2 | Pooling1D 0=1 1=4 2=3 | Pooling1D 0=1 4=1 | Pooling1D 0=0 4=1 | Pooling1D 0=0 1=3 2=2 5=2
4x6: Pooling1D 0=0 1=3 2=2 5=3 | Pooling1D 0=1 7=1 8=3 | Pooling1D 0=0 7=1 8=1 | InnerProduct 0=3 1=1 2=18 t18 f3
4x6: InnerProduct 0=3 1=1 2=72 t72 f3 | InnerProduct 0=3 1=1 2=18 9=1 t18 f3
4x6: InnerProduct 0=3 1=1 2=18 9=2 -23310=1,0.1 t18 f3 | InnerProduct 0=3 1=1 2=18 9=3 -23310=2,-0.1,0.2 t18 f3
4x6: InnerProduct 0=3 1=1 2=18 9=4 t18 f3 | InnerProduct 0=3 1=1 2=18 9=5 t18 f3
4x6: InnerProduct 0=3 1=1 2=18 9=6 -23310=2,0.2,0.5 t18 f3 | Gemm 10=4 3=1 5=1 6=1 7=4 8=3 9=6 t3x6 t3
4x6: Gemm 0=0.5 1=2.0 10=4 3=0 5=1 6=1 8=3 9=6 t6x3 t3 | Gemm 10=0 3=1 5=1 6=1 8=3 9=6 t3x6 t1
4x6: Gemm 10=3 3=1 5=1 6=1 7=4 8=3 9=6 t3x6 t4x3 | Gemm 10=1 3=1 5=1 6=1 7=4 8=3 9=6 t3x6 t4 | LayerNorm 0=6 1=0.01 2=1 f6 f6
4x6: LayerNorm 0=6 1=0.01 2=0 | LayerNorm 0=6 f6 f6 | RMSNorm 0=6 1=0.01 2=1 f6 | GroupNorm 0=2 1=4 2=0.01 3=1 f4 f4
4x6: BatchNorm 0=4 1=0.01 f4 f4 p4 f4 | Scale 0=4 1=1 f4 f4 | Scale 0=4 f4 | PReLU 0=4 f4 | PReLU 0=1 f1
3x6x8: Permute 0=0 | Permute 0=1 | Permute 0=2 | Permute 0=3 | Permute 0=4 | Permute 0=5 | Softmax 0=1 1=1 | Flatten
3x6x8: Reshape 0=16 1=9 | Reshape 0=0 1=0 2=0 | Reshape 0=-1 1=3 | Reduction 0=3 1=0 -23303=2,1,2 5=1 | Pooling 0=0 1=2 2=2 5=1
3x6x8: Pooling 0=1 1=3 11=2 2=2 12=1 3=1 13=0 5=1 | Pooling 0=1 1=3 2=2 3=1 5=1 6=1 | Pooling 0=0 1=3 2=2
3x6x8: Pooling 0=0 1=2 2=2 5=2 | Pooling 0=1 4=1 | Pooling 0=1 7=1 8=2 18=3 | Padding 0=1 1=2 2=1 3=0 7=1 8=1
3x6x8: ExpandDims -23303=1,1 | Crop 2=1 3=-233 4=4 5=2 | Tile 0=0 1=2 | GLU 0=1 | Flip -23300=1,0 | BinaryOp 0=2 1=1 2=0.5
3x6x8: CumulativeSum 0=1
6: Softmax 0=0 | GLU 0=0 | Reduction 0=3 | ExpandDims -23303=1,0 | InnerProduct 0=3 2=18 t18 | LayerNorm 0=6 1=0.01 2=1 f6 f6
1x6: Squeeze -23303=1,0 | Squeeze 1=1
1x1: Squeeze 0=1 1=1
1x3x1: Squeeze -23303=2,0,2
2x3x4: InnerProduct 0=3 1=1 2=72 t72 f3
6x4: Gemm 2=1 10=-1 3=1 5=1 6=1 8=3 9=6 t3x6
4x9: Convolution1D 0=8 1=3 5=1 6=96 t8x4x3 f8 | Convolution1D 0=8 1=3 2=2 3=2 4=1 15=2 5=1 6=96 9=1 t8x4x3 f8
4x9: Convolution1D 0=8 1=3 4=-233 5=1 6=96 t8x4x3 f8 | Convolution1D 0=8 1=4 3=2 4=-234 15=-234 5=1 6=128 t8x4x4 f8
4x9: ConvolutionDepthWise1D 0=8 1=3 5=1 6=48 7=2 t8x2x3 f8 | ConvolutionDepthWise1D 0=4 1=3 5=1 6=12 7=4 t4x1x3 f4
3x7x8: Convolution 0=8 1=3 11=2 5=1 6=144 t8x3x2x3 f8
3x7x8: Convolution 0=8 1=3 2=2 12=1 3=2 13=1 4=1 15=2 14=0 16=1 5=1 6=216 9=2 -23310=1,0.1 t8x3x3x3 f8
3x7x8: Convolution 0=8 1=3 4=-233 3=2 5=1 6=216 t8x3x3x3 f8
4x7x8: ConvolutionDepthWise 0=8 1=3 5=1 6=144 7=2 t8x2x3x3 f8 | ConvolutionDepthWise 0=4 1=3 4=1 5=1 6=36 7=4 t4x1x3x3 f4
4x5: Deconvolution1D 0=6 1=3 3=2 5=1 6=72 t6x4x3 f6 | Deconvolution1D 0=6 1=3 3=2 4=1 15=1 5=1 6=72 t6x4x3 f6
4x5: DeconvolutionDepthWise1D 0=6 1=3 3=2 5=1 6=36 7=2 t6x2x3 f6
4x5x6: Deconvolution 0=6 1=3 11=2 3=2 4=1 5=1 6=144 t6x4x2x3 f6 | DeconvolutionDepthWise 0=6 1=3 5=1 6=108 7=2 t6x2x3x3 f6
2x4x6: LayerNorm 0=6 1=0.01 2=1 f6 f6 | LayerNorm 0=24 1=0.01 2=1 f24 f24
4x3x5: GroupNorm 0=2 1=4 2=0.01 3=1 f4 f4 | InstanceNorm 0=4 1=0.01 2=1 f4 f4 | InstanceNorm 0=4 1=0.01 2=0
4x3x5: BatchNorm 0=4 1=0.01 f4 f4 p4 f4 | Scale 0=4 1=1 f4 f4 | Bias 0=4 f4 | PReLU 0=4 f4
4: BatchNorm 0=4 1=0.01 f4 f4 p4 f4 | Scale 0=4 1=1 f4 f4 | PReLU 0=4 f4
"""
"""The shape of a blob, and layers that read it: type, parameters and the shapes of the numbers, those with a tag behind t, those above zero
behind p."""


def _layer(shape: str, text: str) -> tuple[str, tuple[int, ...], str, Numbers]:
    kind, *words = text.split()
    numbers = []
    for seed, word in enumerate([word for word in words if "=" not in word], 1):
        array = full(seed, *map(int, word[1:].split("x")))
        numbers.append((word[0] == "t", 1 + array if word[0] == "p" else array))
    return kind, tuple(map(int, shape.split("x"))), " ".join(word for word in words if "=" in word), numbers


LAYERS = [_layer(line.split(": ")[0], text) for line in SPECIMENS.split("\n")[1:-1] for text in line.split(": ")[1].split(" | ")]


def test_each_layer_gives_what_ncnn_gives(tmp_path: Path) -> None:
    unseen = (
        set(_RULES) - {kind for kind, *_ in LAYERS} - {"BinaryOp", "Concat", "Eltwise", "Embed", "MatMul", "MemoryData", "Slice", "Split"}
    )
    assert not unseen

    def check(layer: tuple[str, tuple[int, ...], str, Numbers]) -> None:
        kind, shape, more, numbers = layer
        sizes = " ".join(f"{key}={size}" for key, size in zip((0, 1, 2), reversed(shape), strict=False))
        rows = [f"Input x 0 1 x {sizes}", "PReLU before 1 1 x read 0=1", f"{kind} layer 1 1 read y {more}"]
        path = net(tmp_path, rows, [(False, np.array([0.7], np.float32)), *numbers])
        agree(path, full(9, 3, *shape) * 2, ["y"])

    each(LAYERS, check, lambda layer: " ".join(map(str, layer[:3])))


def test_a_parameter_that_nothing_reads_is_refused(tmp_path: Path) -> None:
    """Each layer with one that no version of ncnn has; two that every layer may have change nothing."""

    def check(layer: tuple[str, tuple[int, ...], str, Numbers]) -> None:
        kind, shape, more, numbers = layer
        sizes = " ".join(f"{key}={size}" for key, size in zip((0, 1, 2), reversed(shape), strict=False))
        before = [(False, np.array([0.7], np.float32)), *numbers]
        rows = [f"Input x 0 1 x {sizes}", "PReLU before 1 1 x read 0=1", f"{kind} layer 1 1 read y {more} -23330=4,1,6,1,1 31=1"]
        agree(net(tmp_path, rows, before), full(9, 1, *shape), ["y"])
        path = net(tmp_path, [*rows[:2], f"{rows[2]} 29=1"], before)
        with pytest.raises(RefusedError, match=f"{kind} with the parameter 29=1"):
            rc.export_model(path, tmp_path / "out.onnx", force=True)

    each(drawn.drawn(LAYERS, 40, "ncnn parameters"), check, lambda layer: " ".join(map(str, layer[:3])))


# Layers of several blobs --------------------------------------------------------------------------------------


def sizes_of(shape: Sequence[int]) -> str:
    return " ".join(f"{key}={size}" for key, size in zip((0, 1, 2), reversed(shape), strict=False))


PAIRS = [((4, 6), (4, 6)), ((4, 6), (6,)), ((6,), (4, 6)), ((4, 6), (4,)), ((4, 6), (1, 6)), ((4, 6), (4, 1)), ((3, 4, 6), (6,)),
         ((3, 4, 6), (3,)), ((3, 4, 6), (3, 4)), ((3, 4, 6), (1, 4, 6)), ((4, 6), (1,)), ((6,), (6,)), ((1, 6), (4, 1))]  # fmt: skip
PRODUCTS = [((4, 6), (6, 3), 0), ((4, 6), (3, 6), 1), ((6,), (6, 3), 0), ((4, 6), (6,), 0), ((2, 4, 6), (6, 3), 0),
            ((2, 4, 6), (2, 3, 6), 1), ((4, 6), (2, 6, 3), 0), ((2, 4, 6), (6,), 0)]  # fmt: skip


@pytest.mark.parametrize("held", [False, True])
def test_layers_of_two_blobs_give_what_ncnn_gives(tmp_path: Path, held: bool) -> None:
    """The second one an input, or numbers of the file."""
    cases = [(f"BinaryOp op 2 1 {{}} y 0={n}", *pair) for n, pair in itertools.product((0, 1, 2, 4, 7, 12), PAIRS)]
    cases += [(f"MatMul op 2 1 {{}} y 0={turned}", a, b) for a, b, turned in PRODUCTS]
    cases += [(f"Eltwise op 2 1 {{}} y {more}", (4, 6), (4, 6)) for more in ("", "0=1", "0=1 -23301=2,0.5,-2.0", "0=2")]
    cases += [
        ("Concat op 2 1 {} y 0=0", (4, 6), (2, 6)),
        ("Concat op 2 1 {} y 0=-1", (3, 4, 6), (3, 4, 1)),
        ("Concat op 2 1 {} y", (4,), (3,)),
    ]

    def check(case: tuple[str, tuple[int, ...], tuple[int, ...]]) -> None:
        row, a, b = case
        rows = [f"Input x 0 1 x {sizes_of(a)}", "PReLU before 1 1 x read 0=1"]
        rows.append(f"MemoryData z 0 1 z {sizes_of(b)}" if held else f"Input z 0 1 z {sizes_of(b)}")
        numbers = [(False, np.array([0.7], np.float32)), *([(False, full(4, *b))] if held else [])]
        path = net(tmp_path, [*rows, row.format("read z")], numbers)
        inputs = {"x": full(9, 2, *a), **({} if held else {"z": full(8, 2, *b)})}
        truth = by_ncnn(path, inputs, ["y"])
        assert truth is not None
        (value,) = by_onnx(path, [*inputs.values()])
        assert value.shape == truth[0].shape
        np.testing.assert_allclose(value, truth[0], rtol=1e-4, atol=1e-5)

    each(drawn.drawn(cases, 40, "ncnn pairs"), check)


def test_a_vector_stands_for_the_axis_that_is_as_long(tmp_path: Path) -> None:
    """ncnn picks the axis by its length as it runs: where a length is open, what is written would be wrong at one of them."""
    rows = ["Input x 0 1 x 0=6", "Permute p 1 1 r q", "MemoryData z 0 1 z 0=5", "BinaryOp op 2 1 q z y 0=0"]
    row, numbers = rnn("x", 6, "r")
    path = net(tmp_path, ["Input x 0 1 x", row, *rows[1:]], [*numbers, (False, full(3, 5))])
    with pytest.raises(RefusedError, match="the operator BinaryOp"):
        rc.export_model(path, tmp_path / "out.onnx")


def test_a_table_parts_and_copies(tmp_path: Path) -> None:
    row, numbers = rnn("e", 6, "r")
    rows = ["Input x 0 1 x", "Embed e 1 1 x e 0=6 1=11 2=1 3=66", row, "Slice s 1 3 r a b c -23300=3,4,-233,-233 1=1",
            "Split t 1 2 b b0 b1", "Concat j 4 1 b0 c a b1 j 0=1", "Slice u 1 2 j j0 j1 -23302=1,3 1=-1"]  # fmt: skip
    path = net(tmp_path, rows, [(True, full(1, 11, 6)), (False, full(2, 6)), *numbers])
    x = np.random.default_rng(1).integers(0, 11, (3, 7)).astype(np.int32)
    agree(path, x, ["j0", "j1"])


# Whole nets --------------------------------------------------------------------------------------------------


DRAWN = """
0:ReLU | 0:TanH | 0:Swish | 0:Softmax 0=-1 1=1 | 0:Permute 0=1 | 3:Permute 0=3 | 0:Flatten | 0:ExpandDims -23303=1,0
0:ExpandDims -23303=1,-1 | 0:Squeeze -23303=1,0 | 0:Squeeze -23303=1,-1 | 0:Flip -23300=1,0 | 0:BinaryOp 0=2 1=1 2=1.25
0:BinaryOp 0=7 1=1 2=0.5 | 0:UnaryOp 0=16 | 0:Crop -23309=1,1 -23310=1,-233 -23311=1,-1
0:Crop -23309=1,0 -23310=1,2 -23311=1,0 | 0:Reduction 0=3 1=0 -23303=1,0 4=1 5=1 | 0:Reduction 0=4 1=0 -23303=1,-1 5=1
0:Reshape 0=-1 1=2 | 0:Reshape 0=-1 | 2:Reshape 0=0 1=-1 | 0:Tile 0=0 1=2 | 0:Padding 2=1 3=2 | 2:Pooling1D 0=0 1=2 2=2 5=1
2:Pooling1D 0=1 1=3 2=1 3=1 5=1 | 2:LayerNorm 1=0.01 2=0 0=W | 2:InnerProduct 0=5 1=1 2=V | 2:Convolution1D 0=5 1=2 5=1 6=K
2:GRU 0=5 1=G 2=2 | 2:LSTM 0=5 1=L 2=1
"""
"""Layers, each behind how many axes it reads; 0 for any number."""


def _drawn_net(draw: random.Random, folder: Path) -> tuple[Path, Array, list[str]]:
    """A net of layers after one another, each of which ncnn runs behind those before."""
    x = full(draw.randrange(1 << 20), 2, draw.randint(4, 7), draw.randint(4, 7)) * 2
    rows, numbers, shape, blob = [f"Input x 0 1 x {sizes_of(x.shape[1:])}"], list[tuple[bool, Array]](), x.shape[1:], "x"
    row, first = rnn("x", shape[1], "b0")
    rows, numbers, blob, shape = [*rows, row], [*first], "b0", (shape[0], 10)
    for number in range(1, draw.randint(4, 9)):
        reads, _, text = draw.choice(re.split(r" \| |\n", DRAWN.strip())).partition(":")
        rank, (kind, *stated) = int(reads), text.split()
        text = " ".join([f"{kind} op{number} 1 1 {blob} b{number}", *stated])
        beyond = (
            ("ExpandDims" in text and len(shape) > 3) or ("1=2" in text and math.prod(shape) % 2) or ("Pooling" in text and shape[-1] < 3)
        )
        if beyond or (rank and len(shape) != rank):  # ncnn drops elements, or reads beyond its blob
            continue
        width, more = shape[-1], list[tuple[bool, Array]]()
        if "2=V" in text:
            more = [(True, full(number, 5, width)), (False, full(number, 5))]
        elif "6=K" in text:
            more = [(True, full(number, 5, shape[0], 2)), (False, full(number, 5))]
        elif "1=G" in text:
            more = [(True, full(number, *each)) for each in ((2, 15, width), (2, 20), (2, 15, 5))]
        elif "1=L" in text:
            more = [(True, full(number, *each)) for each in ((1, 20, width), (1, 20), (1, 20, 5))]
        sizes = {
            "0=W": f"0={width}",
            "2=V": f"2={5 * width}",
            "6=K": f"6={10 * shape[0]}",
            "1=G": f"1={30 * width}",
            "1=L": f"1={20 * width}",
        }
        for word, stated in sizes.items():
            text = text.replace(word, stated)
        if draw.random() < 0.3 and blob != "b0":  # a second reader
            text = text.replace(f" {blob} ", f" {blob}_0 ", 1)
            split = [f"Split s{number} 1 2 {blob} {blob}_0 {blob}_1"]
        else:
            split = []
        path = net(folder, [*rows, *split, text], [*numbers, *more])
        gave = by_ncnn(path, {"x": x}, [f"b{number}"])
        if gave is None or not np.isfinite(gave[0]).all() or gave[0].size > 1 << 14:
            continue
        rows, numbers, blob, shape = [*rows, *split, text], [*numbers, *more], f"b{number}", gave[0].shape[1:]
    read = {word for row in rows for word in row.split()[4 : 4 + int(row.split()[2])]}
    gives = [word for row in rows for word in row.split()[4 + int(row.split()[2]) : 4 + int(row.split()[2]) + int(row.split()[3])]]
    return net(folder, rows, numbers, draw.random() < 0.3), x, [blob for blob in gives if blob not in read]


def test_drawn_nets_give_what_ncnn_gives(tmp_path: Path) -> None:
    """None of these layers is refused."""

    def check(number: int) -> None:
        draw = random.Random(f"{drawn.SEED} {number}")
        path, x, outputs = _drawn_net(draw, tmp_path)
        agree(path, x, outputs)

    each(range(400 if drawn.LONG else 12), check)


AS_PNNX_WRITES = {
    "a first layer of any length": """
        Input in0 0 1 in0
        Gemm g0 1 1 in0 1 10=4 2=0 3=1 4=0 5=1 6=1 7=9 8=7 9=6
        GRU 1 2
        Split s 1 3 2 3 4 5
        Sigmoid a 1 1 3 6
        Crop c 1 1 4 7 -23310=1,-233 -23311=1,1 -23309=1,0
        Eltwise w 2 1 6 7 8 0=1 -23301=2,1.0,0.5
        Concat j 2 1 8 5 out0 0=1""",
    "the last step": """
        Input in0 0 1 in0
        GRU in0 1
        Crop c 1 1 1 2 -23310=1,0 -23311=1,0 -23309=1,-1
        Squeeze q 1 1 2 3 -23303=1,0
        InnerProduct l 1 1 3 out0 0=3 1=1 2=30""",
    "convolutions over time": """
        Input in0 0 1 in0
        Convolution1D c 1 1 in0 1 0=7 1=3 2=1 3=1 4=1 5=1 6=126 9=1
        Pooling1D p 1 1 1 2 0=0 1=2 2=2 3=0 5=1
        Permute t 1 1 2 3 0=1
        GRU 3 4
        Reduction m 1 1 4 5 0=3 1=0 -23303=1,0 4=0 5=1
        LayerNorm n 1 1 5 6 0=10 1=1.000000e-5 2=1
        InnerProduct l 1 1 6 out0 0=3 1=1 2=30""",
}
"""Nets as pnnx writes them, whose inputs state no sizes; a GRU as what it reads and gives."""


NUMBERS: dict[str, Numbers] = {
    "Gemm": [(True, full(1, 7, 6)), (True, full(2, 7))],
    "InnerProduct": [(True, full(3, 3, 10)), (False, full(4, 3))],
    "Convolution1D": [(True, full(1, 7, 6, 3)), (False, full(2, 7))],
    "LayerNorm": [(False, full(5, 10)), (False, full(6, 10))],
}


@pytest.mark.parametrize("half", [False, True])
def test_nets_as_pnnx_writes_them(tmp_path: Path, half: bool) -> None:
    def check(name: str) -> None:
        rows, numbers = list[str](), list[tuple[bool, Array]]()
        for row in AS_PNNX_WRITES[name].split("\n")[1:]:
            row = row.strip()
            kind, *rest = row.split()
            if kind == "GRU":
                row, more = rnn(rest[0], 6 if rest[0] == "in0" else 7, rest[1])
            else:
                more = NUMBERS.get(kind, [])
            rows.append(row)
            numbers += more
        path = net(tmp_path, rows, numbers, half)
        for time in (9, 12):
            x = full(time, 2, time, 6)
            x = x.swapaxes(1, 2).copy() if "Convolution1D" in rows[1] else x
            truth = by_ncnn(path, {"in0": x}, ["out0"])
            assert truth is not None
            np.testing.assert_allclose(by_onnx(path, [x])[0], truth[0], rtol=2e-4, atol=2e-5)
        assert rc.export_model(path, tmp_path / "again.onnx", force=True, verify=True).equal

    each(AS_PNNX_WRITES, check)


def test_how_many_axes_an_input_has_is_stated_where_no_layer_shows_it(tmp_path: Path) -> None:
    rows = ["Input x 0 1 x", "InnerProduct d 1 1 x y 0=3 1=1 2=18"]
    numbers = [(True, full(1, 18)), (False, full(2, 3))]
    with pytest.raises(RefusedError, match="0=WIDTH 1=STEPS"):
        rc.export_model(net(tmp_path, rows, numbers), tmp_path / "out.onnx")
    agree(net(tmp_path, [f"{rows[0]} 0=6 1=-1", rows[1]], numbers), full(9, 2, 5, 6), ["y"])


def test_lengths_that_decide_something_are_stated_in_the_file(tmp_path: Path) -> None:
    """A pool leaves one row of an image of four; of one of any height nobody knows."""
    row, numbers = rnn("q", 8, "r")
    rows = ["Input x 0 1 x", "Convolution c 1 1 x c 0=8 1=3 4=1 5=1 6=216 9=1", "Pooling p 1 1 c p 0=0 1=2 2=2 11=4 12=4 5=1"]
    rows += ["Squeeze s 1 1 p s 1=1", "Permute t 1 1 s q 0=1", row]
    numbers = [(True, full(1, 8, 3, 3, 3)), (False, full(2, 8)), *numbers]
    with pytest.raises(RefusedError, match=r"Squeeze.*0=WIDTH 1=HEIGHT 2=CHANNELS"):
        rc.export_model(net(tmp_path, rows, numbers), tmp_path / "out.onnx")
    agree(net(tmp_path, [f"{rows[0]} 0=40 1=4 2=3", *rows[1:]], numbers), full(1, 2, 3, 4, 40), ["r"])


def test_layers_of_one_name_have_numbers_of_their_own(tmp_path: Path) -> None:
    """ncnn knows layers by their places."""
    row, numbers = rnn("b", 6, "y")
    rows = ["Input x 0 1 x 0=6 1=-1", "InnerProduct rnn 1 1 x a 0=6 2=36", "InnerProduct rnn 1 1 a b 0=6 2=36", row]
    path = net(tmp_path, rows, [(True, full(1, 36)), (True, full(2, 36)), *numbers])
    agree(path, full(9, 2, 5, 6), ["y"])
    assert len(rc.load(path).tensors) == 2


def test_integers_are_read_as_what_they_stand_for(tmp_path: Path) -> None:
    codes, scales = np.random.default_rng(1).integers(-127, 128, (3, 6)).astype(np.int8), np.array([200.0, 150.0, 300.0], np.float32)
    rows = ["Input x 0 1 x 0=6 1=-1", "InnerProduct d 1 1 x y 0=3 1=1 2=18 8=2"]
    path = net(tmp_path, rows)
    bias, scale_of_input = full(2, 3), np.array([120.0], np.float32)
    parts = [(0x000D4B38).to_bytes(4, "little"), codes.tobytes(), bytes(2), bias.tobytes(), scales.tobytes(), scale_of_input.tobytes()]
    path.with_suffix(".bin").write_bytes(b"".join(parts))
    x = full(9, 2, 5, 6)
    (value,) = by_onnx(path, [x])
    np.testing.assert_allclose(value, x @ (codes / scales[:, None]).T + bias, rtol=1e-5, atol=1e-6)
    assert any("int8" in note for note in rc.export_model(path, tmp_path / "out.onnx", force=True).notes)
    truth = by_ncnn(path, {"x": x}, ["y"])
    assert truth is not None
    assert 0 < np.abs(truth[0] - value).max() < 0.02


# Nets that rnnconvert writes ---------------------------------------------------------------------------------


def test_what_is_written_is_read_back_as_the_same_model(tmp_path: Path) -> None:
    """Each kind of layer that the target has, from Keras to ncnn to ONNX."""
    k = needed("keras", "keras")
    every = layers(k)

    def check(name: str) -> None:
        model = as_net(k, every[name], tmp_path)
        try:
            rc.export_model(tmp_path / "m.param", tmp_path / "m.onnx", force=True)
        except RefusedError as error:  # its pads are known where its lengths are
            assert "auto_pad" in error.feature
            raise NotComparedError(error.feature) from None
        for time in (12, 9):
            x = np.random.default_rng(4).normal(size=(2, time, 3)).astype(np.float32)
            (value,) = RUNS["onnx"](tmp_path / "m.onnx")([x])
            np.testing.assert_allclose(value, k.ops.convert_to_numpy(model(x)), rtol=1e-4, atol=1e-5)

    each(drawn.drawn([name for name in every if "pools" not in name], 12, "ncnn read back"), check)  # a net of these has no numbers


def test_a_damaged_net_is_read_or_refused(tmp_path: Path) -> None:
    """Words of a net exchanged, and inputs and layers by the thousand: an answer in time, and no error but ours."""
    row, numbers = rnn("q", 7, "r")
    text = """
        Input x 0 1 x
        Convolution1D c 1 1 x c 0=7 1=3 5=1 6=126
        Permute p 1 1 c q 0=1
        GRU
        Slice s 1 2 r a b -23300=2,-233,-233 1=1
        BinaryOp m 2 1 a b m 0=2
        Crop k 1 1 m k -23309=1,1 -23310=1,-233 -23311=1,0
        Reduction d 1 1 k d 0=3 1=0 -23303=1,0 5=1"""
    rows = [line.strip().replace("GRU", row) for line in text.split("\n")[1:]]
    path = net(tmp_path, rows, [*NUMBERS["Convolution1D"], *numbers])
    text, draw, ends = path.read_text(), random.Random(drawn.SEED), set[str]()
    words = text.split()
    for _ in range(60):
        damaged = list(words)
        for _ in range(draw.choice((1, 2))):
            damaged[draw.randrange(1, len(words))] = draw.choice([*words, "0=-1", "1=1e40", "-23300=1,0", "9=7", "0=99999", "x y"])
        lines = text
        for old, new in zip(words, damaged, strict=True):
            lines = lines.replace(old, new, 1) if old != new else lines
        path.write_text(lines)
        try:
            rc.export_model(path, tmp_path / "out.onnx", force=True)
            ends.add("written")
        except rc.RnnConvertError as error:
            ends.add(type(error).__name__)
    assert {"RefusedError", "UnreadableError"} <= ends
    many = [f"Input x{n} 0 1 x{n}" for n in range(20_000)] + [f"ReLU r{n} 1 1 x{n} y{n}" for n in range(20_000)]
    row, numbers = rnn("y0", 6, "r")
    assert list(rc.load(net(tmp_path, [*many, row], numbers)).layers) == ["rnn"]
