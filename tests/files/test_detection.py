"""Which format a file is of: its kind decided once, only rooms of that kind entered, a close call told."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from docs.system_pairs import CELLS, layout_of, stack_of
from rnnconvert.containers import safetensors
from rnnconvert.core.remedies import Flag
from rnnconvert.files import detect
from rnnconvert.files.adapter import adapter, adapters, names
from rnnconvert.files.arrays_by_name import in_memory
from rnnconvert.files.opened import KIND, SHAPED, STATED, FormatClaim, Opened
from rnnconvert.language import registry
from rnnconvert.language.registry import ARCHIVES, Card
from tests import ROOT
from tests.helpers.sources import stack

OTHERS = ("folder", "bundle", "table", "npy", "bson", "jld2", "pickle", "tar", "protobuf", "json", "described")


def after(code: str, *arguments: object) -> Any:
    """What a fresh interpreter prints, as JSON."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout)


# Cards -------------------------------------------------------------------------------------------------


def test_cards_are_known_without_entering_a_room() -> None:
    code = (
        "import json, sys; from rnnconvert.language import registry; cards = sorted(registry.cards()); "
        "print(json.dumps([cards, [name for name in sys.modules if name.startswith('rnnconvert.formats.')]]))"
    )
    assert after(code) == [sorted(registry.systems()), []]


@pytest.mark.parametrize("card", registry.cards().values(), ids=lambda card: card.name)
def test_a_card_says_what_its_room_does(card: Card) -> None:
    reader = adapter(card.name)
    assert card.name == reader.NAME and card.endings == tuple(reader.SUFFIXES)
    assert registry.layouts_of(card.name) == registry.frameworks()[card.name]
    assert {kind.partition(":")[0] for kind in card.kinds} <= {*ARCHIVES, *OTHERS, "zip"}
    assert {*card.usual} <= {*card.endings}
    assert card.kinds or card.named or card.begins


def test_every_kind_has_a_room_and_is_known() -> None:
    assert {kind for card in registry.cards().values() for kind in card.kinds if ":" not in kind} == {*ARCHIVES, *OTHERS}


def test_no_ending_is_the_usual_one_of_two_formats() -> None:
    endings = [end for card in registry.cards().values() for end in card.usual]
    assert len(endings) == len({*endings})


# Kinds -------------------------------------------------------------------------------------------------


def written(folder: Path) -> list[Path]:
    """A cell of every format in every ending that it writes, and files that are none."""
    files = []
    for name, room in adapters().items():
        cells = [asked for asked in CELLS if layout_of(name, asked) is not None and room.layouts(rc_options())]
        for asked in cells[-1:]:
            layout = layout_of(name, asked)
            assert layout is not None
            for suffix in room.SUFFIXES:
                path = folder / f"{name}{suffix}"
                try:
                    rc.save(in_memory(stack_of(layout, asked)), path, name)
                except (rc.UsageError, rc.RefusedError, rc.MissingPackageError):
                    continue
                files.append(path)
    for number, head in enumerate(
        (b"", b"{}", b"\x80\x02}q\x00.", b"\x08\x07\x12\x03abc", b"\x81\xa1a\x90", b"PK\x03\x04", b"\x89HDF\r\n\x1a\n",
         b"\x93NUMPY", b"12345678{}", b"\x03\0\0\0\x01\0\0\0\x00\0\0\0", b"HDF5-based Julia Data Format", b"\x0c\0\0\0\x02tag\0....")
    ):  # fmt: skip
        (folder / f"head{number}").write_bytes(head)
        files.append(folder / f"head{number}")
    return [*files, folder]


def rc_options() -> Any:
    from rnnconvert.files.options import Options

    return Options()


def test_no_room_sees_its_own_in_a_file_of_a_kind_that_it_does_not_declare(tmp_path: Path) -> None:
    """Otherwise the room would not be asked, and the file not be read."""
    files = written(tmp_path)
    assert len(files) > 50
    for path in files:
        file = Opened(path)
        for card in registry.cards().values():
            if not file.may_be(card):
                assert adapter(card.name).recognise(file) is None, (path.name, card.name, sorted(file.kinds))


def test_what_a_format_writes_is_read_as_this_format(tmp_path: Path) -> None:
    nameless = {"persistent_rnn"}  # its flat vector does not say what it is
    for path in written(tmp_path):
        name = path.name.partition(".")[0]
        if name in registry.cards() and name not in nameless:
            assert next(iter(detect.seen(Opened(path)))) == name, path.name


def test_a_zip_archive_of_unknown_entries_enters_no_room(tmp_path: Path) -> None:
    import zipfile

    with zipfile.ZipFile(tmp_path / "m.zip", "w") as archive:
        archive.writestr("letter.txt", "hello")
    file = Opened(tmp_path / "m.zip")
    assert file.entries == ("letter.txt",)
    assert [card.name for card in registry.cards().values() if file.may_be(card)] == []


# Opened once -------------------------------------------------------------------------------------------

COUNT = """
import json, sys
from pathlib import Path
from rnnconvert.files import detect
from rnnconvert.files.opened import Opened
name, opens = sys.argv[1], []
def hook(event, given):
    if event == "open" and str(given[0]).endswith(Path(name).name):
        opens.append(str(given[0]))
sys.addaudithook(hook)
reader = detect.source(Opened(Path(name))).reader.NAME
print(json.dumps([reader, len(opens)]))
"""


@pytest.mark.parametrize(
    ("name", "format", "most"),
    [("m.pt", "pytorch", 1), ("m.keras", "keras", 1), ("m.onnx", "onnx", 1), ("m.msgpack", "flax", 2), ("m.h5", "keras", 2),
     ("m.safetensors", "pytorch", 2), ("m.npz", "flux", 3)],
)  # fmt: skip
def test_a_file_is_opened_once_and_its_arrays_are_listed_once(name: str, format: str, most: int, tmp_path: Path) -> None:
    """Once for its first bytes and its entries, and once more (a zip archive twice) where arrays have to be seen."""
    rc.save(in_memory(stack("lstm")), tmp_path / name, format)
    assert after(COUNT, tmp_path / name)[1] <= most


def test_only_rooms_of_the_source_and_of_the_target_are_entered(tmp_path: Path) -> None:
    rc.save(in_memory(stack("lstm")), tmp_path / "m.pt")
    code = (
        "import json, sys; from rnnconvert import convert; convert(sys.argv[1], sys.argv[2]); "
        "print(json.dumps(sorted(name for name in sys.modules if name.startswith('rnnconvert.formats'))))"
    )
    modules = after(code, tmp_path / "m.pt", tmp_path / "m.keras")
    assert {name.split(".")[2] for name in modules if name.count(".") > 1} == {"keras", "pytorch"}
    assert len(modules) <= 33, modules
    modules = after(code, tmp_path / "m.pt", tmp_path / "m.safetensors")
    assert {name.split(".")[2] for name in modules if name.count(".") > 1} == {"pytorch"}


# Scores ------------------------------------------------------------------------------------------------


class Reads:
    """A format of another's that sees its own in every .npz."""

    NAME = "theirs"
    SUFFIXES = (".npz",)

    def __init__(self, score: int) -> None:
        self.score = score

    def recognise(self, file: Opened) -> FormatClaim | None:
        return FormatClaim(self.score, "an archive with a letter") if "npz" in file.kinds else None


@pytest.fixture
def npz(tmp_path: Path) -> Path:
    """An archive with the arrays of Paddle's neighbour, PyTorch, whose names no other format has."""
    path = tmp_path / "m.npz"
    rc.save(in_memory(stack("lstm")), tmp_path / "m.pt")
    arrays: dict[str, Any] = {name: np.asarray(array) for name, array in rc.load(tmp_path / "m.pt").arrays.items()}
    np.savez(path, **arrays)
    return path


@pytest.mark.parametrize(("score", "first"), [(KIND, "pytorch"), (SHAPED, "theirs"), (STATED, "theirs")])
def test_the_surest_format_reads_a_file(score: int, first: str, npz: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_ADDED", [Reads(score)])
    assert names()[0] == "theirs"
    source = detect.source(Opened(npz))
    assert first == source.reader.NAME
    assert [name for name, _ in source.others] == (["pytorch"] if score == SHAPED else [])


def test_a_close_call_is_told_with_what_to_say(npz: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert rc.load(npz).warnings == ()
    pytorch = adapter("pytorch")

    class Close(Reads):
        def read(self, path: Path, options: Any) -> rc.Checkpoint:
            return pytorch.read(path, options)

    monkeypatch.setattr(registry, "_ADDED", [Close(SHAPED)])
    warnings = rc.load(npz).warnings
    assert any("it may also be pytorch" in warning and "--from pytorch" in warning for warning in warnings)
    assert not any("as well" in warning for warning in rc.load(npz, "pytorch").warnings)


def test_a_reader_is_asked_once_of_a_file_and_its_error_is_kept(npz: Path) -> None:
    asked: list[Path] = []

    def reads(path: Path) -> int:
        asked.append(path)
        raise rc.UnreadableError(path, "it is damaged")

    file = Opened(npz)
    for _ in range(2):
        with pytest.raises(rc.UnreadableError, match="damaged"):
            file.cached(reads)
    assert asked == [npz]


def test_pytorchs_names_and_metadata_speak_for_a_safetensors_file(tmp_path: Path) -> None:
    ours = {"lstm.weight_ih_l0": (16, 3), "lstm.weight_hh_l0": (16, 4)}
    theirs = {"att.Wx": (16, 3), "att.Wh": (16, 4)}
    for shapes, stated, first, warned in (
        (ours, False, "pytorch", False), (theirs, False, "mlx", False), ({**ours, **theirs}, False, "mlx", True),
        (theirs, True, "mlx", True), ({**ours, **theirs}, True, "pytorch", False), (ours, True, "pytorch", False),
    ):  # fmt: skip
        path = tmp_path / "a.safetensors"
        arrays = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
        safetensors.write(path, arrays, {"format": "pt"} if stated else {})
        checkpoint = rc.load(path)
        assert checkpoint.format == first, (shapes, stated)
        assert any("pytorch" in warning for warning in checkpoint.warnings) == warned, (shapes, stated, checkpoint.warnings)


@pytest.mark.parametrize("card", [card for card in registry.cards().values() if card.unwritten], ids=lambda card: card.name)
def test_what_is_said_of_an_ending_that_is_only_read_leads_to_a_file_of_that_format(card: Card, tmp_path: Path) -> None:
    for ending in card.unwritten:
        with pytest.raises(rc.UsageError, match="files are only read") as raised:
            detect.target(tmp_path / f"a{ending}")
        text = str(raised.value)
        assert ("ends in" in text) == (str(Flag("to", card.name)) in text) == bool(card.written), text
        for written in card.written:
            assert written in text and detect.target(tmp_path / f"a{written}", card.name) is adapter(card.name)


def test_of_a_folder_that_may_not_be_entered_the_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a file that is looked for in it. Whoever runs this may be allowed everything, so the system's answer is stated."""
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(rc.UnreadableError, match=rf"^{re.escape(str(tmp_path))}: Permission denied"):
        rc.load(tmp_path)
