"""Tesseract: networks as its source serializes them; and the English one of Debian reads lines of text by what is read of it."""

from __future__ import annotations

import itertools
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core import reference
from rnnconvert.core.arrays import Array
from rnnconvert.core.cells import Clip
from rnnconvert.core.errors import UnreadableError
from tests.helpers.damage import endings
from tests.helpers.requirements import need

RNG = np.random.default_rng(4)
GATES = {"CI": "g", "GI": "i", "GF1": "f", "GO": "o"}


def text(value: str) -> bytes:
    return struct.pack("<I", len(value)) + value.encode()


def layer(kind: str, name: str, sizes: tuple[int, int], content: bytes, flags: int = 0xC0) -> bytes:
    return b"\0" + text(kind) + struct.pack("<bbIiii", 0, 0, flags, *sizes, 1) + text(name) + content


def matrix(numbers: Array, integers: bool = False) -> bytes:
    head = struct.pack("<ii", *numbers.shape)
    if not integers:
        return bytes([128]) + head + bytes(8) + numbers.astype("<f8").tobytes()
    scales = np.abs(numbers).max(1) / 127
    codes = np.round(numbers / scales[:, None]).astype("i1")
    return bytes([129]) + head + bytes(1) + codes.tobytes() + struct.pack("<I", len(scales)) + scales.astype("<f8").tobytes()


def series(name: str, *layers: bytes, kind: str = "Series") -> bytes:
    return layer(kind, name, (1, 1), struct.pack("<I", len(layers)) + b"".join(layers) + struct.pack("<I", 1) + bytes(4))


def lstm(numbers: dict[str, Array], width: int, integers: bool = False, kind: str = "LSTM") -> bytes:
    units = numbers["CI"].shape[0]
    inputs = numbers["CI"].shape[1] - 1
    return layer(kind, f"L{units}", (width, units), struct.pack("<i", inputs) + b"".join(matrix(w, integers) for w in numbers.values()))


def numbers_of(width: int, units: int, extra: int = 0) -> dict[str, Array]:
    names = [*GATES, "GFS"][: 5 if extra else 4]
    return {gate: RNG.uniform(-1, 1, (units, width + units + extra + 1)) for gate in names}


def network(numbers: dict[str, Array], integers: bool = False) -> bytes:
    return series(
        "Series", layer("Input", "Input", (3, 3), bytes(20)), layer("Maxpool", "Pool", (3, 3), bytes(8)),
        series("Rev", lstm(numbers, 3, integers), kind="RTLReversed"), layer("Softmax", "Out", (4, 2), matrix(np.ones((2, 5)), integers)),
    )  # fmt: skip


def trained(path: Path, content: bytes) -> Path:
    places = [-1] * 24
    places[17], places[18] = 196, 196 + len(content)
    path.write_bytes(struct.pack("<i24q", 24, *places) + content + b"the next")
    return path


@pytest.mark.parametrize("integers", [False, True])
@pytest.mark.parametrize("end", [".lstm", ".traineddata"])
def test_a_network_is_read_as_its_source_computes_it(end: str, integers: bool, tmp_path: Path) -> None:
    numbers, path = numbers_of(3, 4), tmp_path / f"m{end}"
    path.write_bytes(network(numbers, integers)) if end == ".lstm" else trained(path, network(numbers, integers))
    checkpoint = rc.load(path)
    ((name, stack),) = checkpoint.layers.items()
    assert name == "Series/Rev(RTLReversed)/L4" and stack.cell.clips == (Clip("cell", -100.0, 100.0),)
    assert bool(checkpoint.warnings) == integers and "Series/Out/weights" in checkpoint.tensors
    x, h, c, done = RNG.uniform(-1, 1, (5, 1, 3)), np.zeros((1, 4)), np.zeros((1, 4)), []
    for step in x:
        a = {gate: np.concatenate([step, h, np.ones((1, 1))], 1) @ weights.T for gate, weights in numbers.items()}
        c = np.clip(c / (1 + np.exp(-a["GF1"])) + np.tanh(a["CI"]) / (1 + np.exp(-a["GI"])), -100, 100)
        h = np.tanh(c) / (1 + np.exp(-a["GO"]))
        done.append(h)
    np.testing.assert_allclose(reference.run(stack, x).y, np.stack(done), rtol=0, atol=2e-2 if integers else 1e-12)


def test_a_layer_over_two_dimensions_is_named(tmp_path: Path) -> None:
    (tmp_path / "m.lstm").write_bytes(series("Series", lstm(numbers_of(3, 4, 4), 3)))
    checkpoint = rc.load(tmp_path / "m.lstm")
    assert not checkpoint.layers and "two dimensions" in checkpoint.unread[0]


@pytest.mark.parametrize(
    ("content", "why"),
    [(series("Series", layer("LSTMSoftmax", "L", (3, 4), b"")), "LSTMSoftmax"), (network(numbers_of(3, 4))[:-60], "bytes"),
        (network(numbers_of(3, 4))[:-4], "ends at byte"),
     (series("Series", lstm(numbers_of(3, 4), 2)), "do not fit"), (series("S", layer("Linear", "L", (1, 1), bytes(31))), "first files"),
     (b"\0" + text("Series") * 3, "ends at byte")],
)  # fmt: skip
def test_what_is_damaged_is_unreadable(content: bytes, why: str, tmp_path: Path) -> None:
    (tmp_path / "m.lstm").write_bytes(content)
    with pytest.raises(UnreadableError, match=why):
        rc.load(tmp_path / "m.lstm")


@pytest.mark.parametrize("count", [0, 11, 24, 10**6])
def test_a_file_without_a_network_is_unreadable(count: int, tmp_path: Path) -> None:
    (tmp_path / "m.traineddata").write_bytes(struct.pack("<i24q", count, *[-1] * 24))
    with pytest.raises(UnreadableError, match="no network"):
        rc.load(tmp_path / "m.traineddata")


def test_a_damaged_file_ends_in_an_error_of_ours(tmp_path: Path) -> None:
    path = trained(tmp_path / "m.traineddata", network(numbers_of(3, 4), True))
    ends = endings(path)
    assert ends == {"read", "unreadable"}


# The English network ------------------------------------------------------------------------------------------


def english() -> Path:
    paths = sorted(Path("/usr/share/tesseract-ocr").glob("*/tessdata/eng.traineddata"))
    need("tesseract", "" if paths else "Debian's tesseract-ocr-eng is not installed")
    return paths[0]


def characters(data: bytes) -> dict[int, str]:
    """What the classes stand for: the components of characters and of their codes."""
    places = struct.unpack("<24q", data[4:196])
    lines = data[places[21] : places[22]].decode().split("\n")
    names = [line.split(" ")[0] for line in lines[1 : int(lines[0]) + 1]]
    codes, at, alphabet = data[places[22] : places[23]], 4, dict[int, str]()
    for name in names:
        length = struct.unpack("<i", codes[at + 1 : at + 5])[0]
        (first, *_) = struct.unpack(f"<{length}i", codes[at + 5 : at + 5 + 4 * length])
        at += 5 + 4 * length
        alphabet.setdefault(first, " " if name == "NULL" else name)
    return alphabet


def drawn_line(line: str) -> Array:
    import matplotlib
    from PIL import Image, ImageDraw, ImageFont

    font = ImageFont.truetype(f"{matplotlib.get_data_path()}/fonts/ttf/DejaVuSerif.ttf", 26)
    image = Image.new("L", (int(font.getlength(line)) + 24, 36), 255)
    ImageDraw.Draw(image).text((12, 2), line, font=font, fill=0)
    return np.asarray(image) / 127.5 - 1


def read_line(image: Array, checkpoint: Any, layers: list[Any], alphabet: dict[int, str]) -> str:
    """1Ct3,3,16 Mp3,3 Lfys48 Lfx96 Lrx96 Lfx192 O1c: the specification that the file states behind its network."""
    rows, columns = image.shape
    padded = np.pad(image, 1, constant_values=1)
    windows = np.stack([padded[y : y + rows, x : x + columns] for x in range(3) for y in range(3)], -1)
    first, last = checkpoint.tensors["Series/ConvSeries/ConvNL/weights"], checkpoint.tensors["Series/Output/weights"]
    maps = np.tanh(windows @ first[:, :-1].T + first[:, -1])[: rows // 3 * 3, : columns // 3 * 3]
    pooled = maps.reshape(rows // 3, 3, columns // 3, 3, -1).max((1, 3))
    y = reference.run(layers[0], pooled).y[-1][:, None]  # over each column from the top, its last output
    y = reference.run(layers[1], y).y
    y = reference.run(layers[2], y[::-1]).y[::-1]
    classes = (reference.run(layers[3], y).y[:, 0] @ last[:, :-1].T + last[:, -1]).argmax(-1)
    return "".join(alphabet.get(code, "?") for code, _ in itertools.groupby(classes) if code != len(last) - 1)


def test_the_english_network_reads_text_by_the_weights_that_are_read() -> None:
    path = english()
    checkpoint, alphabet = rc.load(path), characters(path.read_bytes())
    layers = [*checkpoint.layers.values()]
    assert [layer.hidden_size for layer in layers] == [48, 96, 96, 192] and not checkpoint.unread
    for line in ("The quick brown fox jumps over the lazy dog", "recurrent networks"):
        assert line in read_line(drawn_line(line), checkpoint, layers, alphabet)
    line = "The quick brown fox"
    image = drawn_line(line)
    for a, b in itertools.combinations("ifgo", 2):
        arrays = layers[3].first.arrays
        swapped = {(part, gate): arrays[part, other] for part in ("input", "recurrent", "input_bias") for gate, other in ((a, b), (b, a))}
        wrong = layers[3].replace(layers=(type(layers[3].layers[0])((layers[3].first.with_arrays(swapped),)),))
        assert line not in read_line(image, checkpoint, [*layers[:3], wrong], alphabet), (a, b)
