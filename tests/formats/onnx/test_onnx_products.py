"""A product with a stored matrix is the same one whichever operator computes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from rnnconvert.formats.onnx.proto import file
from rnnconvert.formats.onnx.proto.program import program
from rnnconvert.graphs.program.products import product_of
from rnnconvert.graphs.program.walk import walk
from tests.helpers.onnx_graphs import in_onnxruntime

RANDOM = np.random.default_rng(3)
ROWS, IN, OUT = 2, 3, 4

PRODUCTS: dict[str, tuple[str, tuple[int, ...], tuple[int, ...], bool, dict[str, Any]]] = {
    "rows": ("MatMul", (ROWS, IN), (IN, OUT), False, {}),
    "sequences": ("MatMul", (5, ROWS, IN), (IN, OUT), False, {}),
    "columns": ("MatMul", (IN, ROWS), (OUT, IN), True, {}),
    "gemm": ("Gemm", (ROWS, IN), (IN, OUT), False, {}),
    "gemm, matrix turned": ("Gemm", (ROWS, IN), (OUT, IN), False, {"transB": 1}),
    "gemm, columns": ("Gemm", (IN, ROWS), (IN, OUT), False, {"transA": 1}),
    "gemm, left": ("Gemm", (IN, ROWS), (OUT, IN), True, {}),
    "gemm, left, rows": ("Gemm", (ROWS, IN), (OUT, IN), True, {"transB": 1}),
    "gemm, left, turned": ("Gemm", (IN, ROWS), (IN, OUT), True, {"transA": 1}),
    **{f"einsum {equation}": ("Einsum", value, matrix, left, {"equation": equation}) for equation, value, matrix, left in (
        ("bi,io->bo", (ROWS, IN), (IN, OUT), False), ("bi,oi->bo", (ROWS, IN), (OUT, IN), False),
        ("bi,oi->ob", (ROWS, IN), (OUT, IN), False), ("ib,io->bo", (IN, ROWS), (IN, OUT), False),
        ("oi,ib->ob", (IN, ROWS), (OUT, IN), True), ("tbi, oi -> tbo", (5, ROWS, IN), (OUT, IN), False),
        ("oi,i->o", (IN,), (OUT, IN), True),
    )},
}  # fmt: skip
OTHERS = {
    "a trace": ("Einsum", (IN, IN), {"equation": "ii,io->o"}), "a sum": ("Einsum", (ROWS, IN), {"equation": "bi,io->b"}),
    "an outer product": ("Einsum", (ROWS, IN), {"equation": "bi,jo->bijo"}), "no arrow": ("Einsum", (ROWS, IN), {"equation": "bi,io"}),
    "between": ("Einsum", (5, IN, ROWS), {"equation": "tib,io->tob"}), "dots": ("Einsum", (ROWS, IN), {"equation": "...i,io->...o"}),
    "a factor": ("Gemm", (ROWS, IN), {"alpha": 2.0}),
}  # fmt: skip


def read_product(path: Path, operator: str, shape: tuple[int, ...], matrix: Any, left: bool, attributes: Any) -> Any:
    """Write a model of one product; return what is found in its node, what it reads, and what onnxruntime gives."""
    node = helper.make_node(operator, ["m", "x"] if left else ["x", "m"], ["y"], **attributes)
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [node], "model", [value("x", onnx.TensorProto.FLOAT, shape)], [value("y", onnx.TensorProto.FLOAT, None)],
        [numpy_helper.from_array(matrix, "m")],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    scope = next(iter(walk(program(file.read(path)))))
    x = RANDOM.normal(size=shape).astype(np.float32)
    return product_of(scope, scope.nodes[0]), x, in_onnxruntime(path, x)[0]


@pytest.mark.parametrize("name", PRODUCTS)
def test_every_form_of_a_product_is_read(name: str, tmp_path: Path) -> None:
    operator, shape, size, left, attributes = PRODUCTS[name]
    matrix = RANDOM.normal(size=size).astype(np.float32)
    product, x, y = read_product(tmp_path / "m.onnx", operator, shape, matrix, left, attributes)
    result = (x.T if product.reads_columns else x) @ product.matrix
    np.testing.assert_allclose(result.T if product.gives_columns else result, y, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_no_such_product_is_none(name: str, tmp_path: Path) -> None:
    operator, shape, attributes = OTHERS[name]
    product, _, _ = read_product(tmp_path / "m.onnx", operator, shape, np.ones((IN, OUT), np.float32), False, attributes)
    assert product is None
