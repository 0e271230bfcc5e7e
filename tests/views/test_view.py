"""`rnnconvert view`: the numbers are numpy's own, names are escaped, and a page is whole whatever it shows."""

from __future__ import annotations

import html
import re
import zlib
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result
from onnx import helper, numpy_helper

import rnnconvert as rc
from rnnconvert.cli.main import main
from rnnconvert.core.cells import Activation, Cell
from rnnconvert.core.version import requirement
from rnnconvert.core.weights import Recurrent
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.language.layout import Sizes
from rnnconvert.views import CELLS, SIDE, picture
from rnnconvert.views import graph as drawing
from rnnconvert.views.measured import BINS, ArrayView, DirectionView, measured
from rnnconvert.views.png import to_png
from rnnconvert.views.spectral import EigenvalueBudget, radius
from tests import ROOT
from tests.helpers.stacks import BOTH, random_stack

FORM = Sizes("lstm", 5, 7, num_layers=2, num_directions=2, parts=BOTH)


def stack_of(form: Sizes = FORM, cell: Cell | None = None, name: str = "enc", seed: int = 1) -> Recurrent:
    return random_stack(form, seed, np.float32, cell).replace(name=name)


def checkpoint(*stacks: Recurrent) -> Checkpoint:
    return Checkpoint("a/model.pt", "canonical", {layer.name: layer for layer in stacks}, evidence=("memory: made here",))


def ways(stack: Recurrent, side: int = SIDE, work: EigenvalueBudget | None = None) -> list[DirectionView]:
    return list(measured(stack, side, work or EigenvalueBudget()))


def part(way: DirectionView, *key: str) -> ArrayView:
    (matching,) = [entry for entry in way.parts if entry.key == key]
    return matching


def test_the_numbers_are_those_of_numpy() -> None:
    stack = stack_of()
    for way in ways(stack):
        for entry in way.parts:
            array = np.asarray(way.direction.arrays[entry.key], np.float64)
            assert entry.norm == pytest.approx(np.linalg.norm(array)) and entry.mean == pytest.approx(array.mean())
            assert (entry.low, entry.high, entry.shape) == (array.min(), array.max(), array.shape)
            assert sum(entry.histogram.counts) == array.size and entry.histogram.every == 1 and entry.not_finite == 0
            positive = sum(entry.histogram.counts[BINS // 2 + 1 :])
            assert positive <= (array > 0).sum() <= positive + entry.histogram.counts[BINS // 2]
            if entry.key[0] == "recurrent":
                assert entry.radius is not None and entry.radius.exact
                assert entry.radius.value == pytest.approx(np.abs(np.linalg.eigvals(array)).max())
        for gate, (low, mean, high) in way.bias.items():
            total = np.sum([np.asarray(way.direction.get(kind, gate), np.float64) for kind in ("input_bias", "recurrent_bias")], axis=0)
            assert (low, mean, high) == pytest.approx((total.min(), total.mean(), total.max()))


def test_what_is_added_at_run_time_counts_as_bias() -> None:
    (plain,), (added,) = (ways(stack_of(Sizes("lstm", 3, 4), cell)) for cell in (Cell("lstm"), Cell("lstm", constants={"f": 1.0})))
    assert added.bias["f"] == pytest.approx([value + 1 for value in plain.bias["f"]]) and added.bias["i"] == plain.bias["i"]


@pytest.mark.parametrize("shape", [(300, 5), (7, 300), (257, 129), (128, 128), (1, 1)])
def test_a_cell_of_a_heat_map_is_the_mean_of_its_block(shape: tuple[int, int]) -> None:
    hidden, width = shape
    (way,) = ways(stack_of(Sizes("rnn", width, hidden)))
    array = np.asarray(way.direction.arrays["input", "n"], np.float64)
    heat = part(way, "input", "n").heat
    assert heat is not None and max(heat.cells.shape) <= SIDE
    tall, wide = heat.block
    for (row, column), value in np.ndenumerate(heat.cells):
        assert value == pytest.approx(array[row * tall : row * tall + tall, column * wide : column * wide + wide].mean())
    assert heat.largest == np.abs(heat.cells).max()


def test_a_weight_that_is_not_finite_is_counted_and_seen() -> None:
    stack = stack_of(Sizes("rnn", 4, 6))
    broken = np.array(stack.first.arrays["recurrent", "n"])
    broken[2, 3], broken[5, 0] = np.nan, np.inf
    direction = stack.first.with_arrays({("recurrent", "n"): broken})
    (way,) = ways(stack.replace(layers=(rc.Layer((direction,)),)))
    weight = part(way, "recurrent", "n")
    assert weight.not_finite == 2 and weight.radius is None and np.isfinite([weight.norm, weight.low, weight.high]).all()
    assert weight.heat is not None and np.isnan(weight.heat.cells).sum() == 2
    page = rc.view(checkpoint(stack.replace(layers=(rc.Layer((direction,)),)))).page()
    assert "has 2 weights that are not finite" in page


def test_a_large_radius_is_found_without_all_eigenvalues() -> None:
    random = np.random.default_rng(0)
    even = random.normal(size=(600, 600)) / 600**0.5
    turned, _ = np.linalg.qr(random.normal(size=(600, 600)))
    leading = even + 3 * np.outer(turned[0], turned[0])
    for matrix, near in ((even, 0.05), (leading, 1e-3), (turned, 0.05)):
        estimate = radius([matrix.astype(np.float32)], EigenvalueBudget())
        assert estimate is not None and not estimate.exact
        assert estimate.value == pytest.approx(np.abs(np.linalg.eigvals(matrix)).max(), rel=near)


def test_a_projection_belongs_to_the_recurrence() -> None:
    (way,) = ways(stack_of(Sizes("lstm", 3, 9, projection_size=4, parts=BOTH | {"projection"})))
    recurrent, projection = (np.asarray(way.direction.arrays[key], np.float64) for key in (("recurrent", "f"), ("projection", "")))
    estimate = part(way, "recurrent", "f").radius
    assert estimate is not None and estimate.value == pytest.approx(np.abs(np.linalg.eigvals(recurrent @ projection)).max())


def test_a_radius_is_left_out_when_the_work_is_done() -> None:
    assert radius([np.eye(5)], EigenvalueBudget(0)) is None


@pytest.mark.parametrize("gates", [Activation("sigmoid"), Activation("hard_sigmoid", 0.2, 0.5)])
def test_saturated_and_dead_units_are_counted(gates: Activation) -> None:
    stack = stack_of(Sizes("lstm", 3, 6, parts=BOTH), Cell("lstm", gate_activation=gates))
    bias = np.array(stack.first.arrays["input_bias", "f"])
    reach = sum(np.abs(np.asarray(stack.first.arrays[kind, "f"])).sum(1) for kind in ("input", "recurrent"))
    other = np.asarray(stack.first.arrays["recurrent_bias", "f"])
    bias[0] = 4.2 + reach[0] - other[0]
    bias[1] = -4.2 - reach[1] - other[1]
    bias[2] = 2.0 + reach[2] - other[2]
    gone = {(kind, "g"): np.array(stack.first.arrays[kind, "g"]) for kind in ("input", "recurrent", "input_bias", "recurrent_bias")}
    for array in gone.values():
        array[3] = 0
    direction = stack.first.with_arrays({("input_bias", "f"): bias, **gone})
    (way,) = ways(stack.replace(layers=(rc.Layer((direction,)),)))
    assert (way.saturated["f"].always_one, way.saturated["f"].always_zero, way.dead) == (1, 1, 1)
    (plain,) = ways(stack)
    assert plain.dead == 0


def test_an_image_has_the_cells_of_its_map() -> None:
    (way,) = ways(stack_of(Sizes("rnn", 6, 4)))
    heat = part(way, "input", "n").heat
    assert heat is not None
    image = to_png(heat)
    assert image[16:24] == (6).to_bytes(4, "big") + (4).to_bytes(4, "big")
    start = image.index(b"IDAT")
    lines = zlib.decompress(image[start + 4 : start + 4 + int.from_bytes(image[start - 4 : start], "big")])
    pixels = np.frombuffer(lines, np.uint8).reshape(4, 7)[:, 1:].astype(int) - 31
    assert np.array_equal(pixels, np.rint(heat.cells / heat.largest * 31).astype(int))


HOSTILE = ["<script>alert(1)</script>", 'x" onload="alert(1)', "a & b", "back\u202eward", "$\\alpha$", "\x1b[31m"]


@pytest.mark.parametrize("name", HOSTILE)
def test_names_are_text_and_nothing_is_loaded(name: str) -> None:
    page = rc.view(checkpoint(stack_of(Sizes("gru", 3, 4), name=name))).page()
    assert "<script" not in page and "\x1b" not in page and "\u202e" not in page
    assert not re.search(r'\b(?:src|href)="(?!#|data:image/png)', page) and "url(" not in page and "@import" not in page
    assert "default-src 'none'" in html.unescape(page) and "script-src" not in page
    assert not re.search(r"<\w[^>]* on\w+=", page)


def test_a_page_shows_every_layer_and_its_links_lead_somewhere() -> None:
    stacks = [stack_of(name=f"layer {number}", seed=number) for number in range(5)]
    page = rc.view(checkpoint(*stacks)).page()
    anchors = set(re.findall(r' id="([^"]+)"', page))
    links = re.findall(r'href="#([^"]+)"', page)
    assert len(links) == 5 and set(links) <= anchors and page == rc.view(checkpoint(*stacks)).page()
    assert page.count("<img ") == 5 * 2 * 2 * 8 and all(html.escape(stack.name) in page for stack in stacks)


def test_a_page_of_many_layers_stays_small() -> None:
    layer = stack_of(Sizes("gru", 64, 64))
    page = rc.view(checkpoint(*(layer.replace(name=f"l{number}") for number in range(500)))).page()
    assert page.count("<img ") == 3000 and len(page) < 6 * CELLS and page.count("<details") == 500


def test_of_a_large_matrix_the_means_of_blocks_are_shown_and_said() -> None:
    size = 4096
    array = np.broadcast_to(np.linspace(-1, 1, size, dtype=np.float32), (size, size))
    stack = Recurrent("big", (rc.Layer((rc.Direction(Cell("rnn"), {("input", "n"): array, ("recurrent", "n"): array}),)),))
    page = rc.view(checkpoint(stack)).page()
    assert "each cell the mean of up to 32 x 32 weights" in page and len(page) < 200_000
    assert "one weight in 17 counted" in page


def test_two_files_stand_side_by_side() -> None:
    right = stack_of()
    first = right.first
    swapped = {("recurrent", "i"): first.arrays["recurrent", "f"], ("recurrent", "f"): first.arrays["recurrent", "i"]}
    layer = rc.Layer((first.with_arrays(swapped), right.layers[0].directions[1]))
    wrong = right.replace(layers=(layer, *right.layers[1:]))
    view = rc.view(checkpoint(right), checkpoint(wrong))
    page = view.page()
    assert "gates i and f of the recurrent matrix are swapped" in html.unescape(page) and page.count("<strong>B minus A") == 2
    assert 'class="verdict bad"' in page and "Not equal</h1>" in page
    assert re.findall("<h4>(.*?)</h4>", page) == ["layer 0, forward"], "a direction without a difference has no heading"
    same = rc.view(checkpoint(right), checkpoint(right)).page()
    assert "Equal</h1>" in same and "B minus A" not in same and "<h4>" not in same
    assert " beside " in repr(view)


def boxes(page: str) -> dict[str, tuple[float, float]]:
    """The middle and the head of each box of the drawing of a model, by what stands in it first."""
    model = page[page.index('class="model"') :].partition("</svg>")[0]
    texts = re.findall(r'<text x="([\d.]+)" y="(\d+)"(?: class="(\w+)")?>([^<]*)<', model)
    return {text: (float(x), float(y)) for x, y, small, text in texts if not small}


def test_the_whole_model_stands_beside_its_layers(tmp_path: Path) -> None:
    nodes = [("Gemm", ["x", "w"], "wide"), ("Relu", ["wide"], "left"), ("Tanh", ["left"], "lower"), ("Add", ["lower", "wide"], "y")]
    graph = helper.make_graph(
        [helper.make_node(kind, inputs, [output]) for kind, inputs, output in nodes],
        "branches",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["N", 3])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["N", 4])],
        [numpy_helper.from_array(np.ones((3, 4), np.float32), "w")],
    )
    onnx.save(helper.make_model(graph), tmp_path / "branches.onnx")
    drawn = boxes(rc.view(tmp_path / "branches.onnx").page())
    heights = [y for _, y in drawn.values()]
    assert heights == sorted(heights) and len(heights) == 5, "each box stands below what it reads"
    page = rc.view(ROOT / "examples" / "encoder.keras").page()
    assert list(boxes(page)) == ["input_layer", "encoder", "summary", "scores"]
    assert page.count('<a href="#layer-0">') == 2, "the layer's line of the table, and its box"
    assert "The whole model" not in rc.view(checkpoint(stack_of())).page()


def test_a_model_of_too_many_layers_is_not_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "MOST_NODES", 2)
    page = rc.view(ROOT / "examples" / "encoder.keras").page()
    assert "too many to draw: 3 layers and operations" in page and 'class="model"' not in page


def test_a_notebook_shows_the_page_in_a_frame() -> None:
    view = rc.view(checkpoint(stack_of()))
    (inner,) = re.findall(r'<iframe srcdoc="([^"]*)"', view._repr_html_())
    assert html.unescape(inner) == view.page()


def called(*words: str) -> Result:
    return CliRunner().invoke(main, ["view", *words])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "model.safetensors"
    rc.save(checkpoint(stack_of(Sizes("gru", 3, 4, parts=BOTH))), path, "pytorch")
    return path


@pytest.mark.parametrize("form", ["html", "svg", "png", "pdf"])
def test_a_file_is_written_in_each_form_and_twice_alike(form: str, file: Path, tmp_path: Path) -> None:
    outputs = [tmp_path / f"{number}.{form}" for number in range(2)]
    for output in outputs:
        result = called(str(file), "-o", str(output))
        assert result.exit_code == 0 and result.output == f"wrote {output}\n", result.output
    first, second = (output.read_bytes() for output in outputs)
    assert first == second and first[:4] in (b"<!do", b"<?xm", b"\x89PNG", b"%PDF")


def test_a_view_is_named_after_its_file_and_replaces_nothing(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert called(file.name).exit_code == 0
    before = (tmp_path / "model.safetensors.html").read_bytes()
    result = called(file.name)
    assert result.exit_code == 2 and "--force" in result.output
    assert (tmp_path / "model.safetensors.html").read_bytes() == before
    assert called(file.name, file.name, "--force", "--json").output == '{\n  "page": "model.safetensors.html"\n}\n'


def test_bad_input_ends_as_it_does_elsewhere(file: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.safetensors"
    damaged.write_bytes(file.read_bytes()[:-3])
    output = tmp_path / "page.html"
    for words, code in (
        ((str(damaged),), 3),
        ((str(tmp_path / "none.pt"),), 3),
        ((str(file), "--layer", "decoder"), 2),
        ((str(file), "--pair", "a=b"), 2),
        ((str(file), str(damaged)), 3),
    ):
        result = called(*words, "-o", str(output))
        assert result.exit_code == code and not output.exists(), result.output
        elsewhere = CliRunner().invoke(main, ["inspect", words[0]])
        if code == 3 and len(words) == 1:
            assert result.output == elsewhere.output
    for name in ("page.gif", "none/page.html"):
        assert called(str(file), "-o", str(tmp_path / name)).exit_code == 2


def test_a_picture_needs_matplotlib(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    result = called(str(file), "-o", str(tmp_path / "a.svg"))
    assert result.exit_code == 5 and f"pip install {requirement('pictures')}" in result.output
    assert not (tmp_path / "a.svg").exists()


def test_a_picture_of_too_much_is_refused() -> None:
    stacks = [stack_of(name=f"l{number}") for number in range(4)]
    with pytest.raises(rc.UsageError, match="up to 12 directions of layers, and there are 16"):
        picture.draw(stacks, "svg", "model.pt")


@pytest.mark.parametrize("name", HOSTILE)
def test_names_are_text_in_pictures_too(name: str) -> None:
    drawn = picture.draw([stack_of(Sizes("rnn", 2, 3), name=name)], "svg", name).decode()
    assert "<script" not in drawn and "\x1b" not in drawn and "\u202e" not in drawn


def test_the_files_of_the_examples_are_shown(tmp_path: Path) -> None:
    examples = ROOT / "examples"
    for path in sorted(examples.glob("*.*")):
        if path.suffix in (".keras", ".onnx", ".pt", ".safetensors", ".h5"):
            assert "spectral radius" in rc.view(path).page()
