"""Files and folders that somebody tried by hand: big-endian numbers, archives in archives, packages, a failing disk, poisoned proofs."""

from __future__ import annotations

import errno
import io
import mmap
import os
import pickle
import random
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

import rnnconvert as rc
from fuzz import mutators
from rnnconvert.core.errors import RnnConvertError, UnreadableError
from rnnconvert.core.limits import ENCLOSED_NESTING
from rnnconvert.running.registry import built_in
from tests import ROOT
from tests.helpers import sources
from tests.helpers.commands import call
from tests.helpers.drawn import each
from tests.helpers.requirements import need, needed

SHAPES = {"weight_ih_l0": (16, 3), "weight_hh_l0": (16, 4), "bias_ih_l0": (16,), "bias_hh_l0": (16,)}
ARRAYS = {f"rnn.{name}": np.linspace(-1, 1, int(np.prod(shape)), dtype=np.float32).reshape(shape) for name, shape in SHAPES.items()}
Order = Literal["<", ">"]


def written(path: Path, order: Order) -> Path:
    arrays: dict[str, Any] = {name: array.astype(array.dtype.newbyteorder(order)) for name, array in ARRAYS.items()}
    if path.suffix == ".npz":
        np.savez(path, **arrays)
    else:
        path.write_bytes(pickle.dumps(arrays))
    return path


def test_big_endian_numbers_are_the_numbers(tmp_path: Path) -> None:
    def check(ending: str) -> None:
        read = []
        orders: tuple[Order, ...] = ("<", ">")
        for order in orders:
            target = tmp_path / f"{ending}{'<>'.index(order)}.safetensors"
            rc.convert(written(tmp_path / f"{'<>'.index(order)}.{ending}", order), target, source_format="pytorch", target_format="pytorch")
            read.append(target.read_bytes())
        assert read[0] == read[1]

    each(["npz", "pkl"], check, str)


def test_archives_in_archives_are_read_to_their_depth_and_refused_beyond(tmp_path: Path) -> None:
    inner, name = sources.write(tmp_path / "m.safetensors").read_bytes(), "m.safetensors"
    for depth in range(1, 8):
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            archive.writestr(name, inner)
        inner, name = buffer.getvalue(), f"depth{depth}.zip"
        (tmp_path / name).write_bytes(inner)
        if depth < ENCLOSED_NESTING:
            assert rc.load(tmp_path / name).layers
        elif depth > ENCLOSED_NESTING:
            with pytest.raises(RnnConvertError) as caught:
                rc.load(tmp_path / name)
            assert caught.value.exit_code in (3, 4)


@pytest.mark.parametrize("kind", ["pipe", "out", "loop", "folder", "empty", "zeros"])
def test_no_file_of_a_package_is_waited_for_or_read_elsewhere(kind: str, tmp_path: Path) -> None:
    source = sources.write(tmp_path / "m.safetensors")
    rc.convert(source, tmp_path / "m.mlpackage", target_format="coreml")
    files = [file.relative_to(tmp_path / "m.mlpackage") for file in (tmp_path / "m.mlpackage").rglob("*") if file.is_file()]
    outside = tmp_path / "outside"
    shutil.copytree(tmp_path / "m.mlpackage", outside)

    def check(name: Path) -> None:
        package = tmp_path / f"{name.name}_{kind}.mlpackage"
        shutil.copytree(outside, package)
        file = package / name
        file.unlink()
        if kind == "pipe":
            os.mkfifo(file)
        elif kind == "out":
            file.symlink_to(outside / name)
        elif kind == "loop":
            file.symlink_to(file.name)
        elif kind == "folder":
            file.mkdir()
        else:
            file.touch()
            os.truncate(file, (3 << 30) * (kind == "zeros"))
        for words in (["inspect", package], ["convert", package, tmp_path / "o.npz", "--to", "haiku"]):
            done = subprocess.run(
                [sys.executable, "-m", "rnnconvert", *map(str, words)], capture_output=True, text=True, timeout=60, check=False
            )
            wrong = done.returncode not in (2, 3, 4) and not (kind == "zeros" and name.name == "weight.bin")
            assert not wrong, (words[0], done.returncode, done.stdout, done.stderr)
            assert not (tmp_path / "o.npz").exists() or kind == "zeros"
            (tmp_path / "o.npz").unlink(missing_ok=True)

    each(files, check, str)


def test_a_disk_that_fails_to_read_is_said_with_the_files_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [sources.write(tmp_path / f"m.{ending}") for ending in ("safetensors", "onnx", "pt")]
    paths += [Path(shutil.copy(ROOT / "examples" / name, tmp_path)) for name in ("decoder.keras", "old_tagger.h5")]

    def failing(*_: Any, **__: Any) -> Any:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    class Failing(mmap.mmap):
        def __new__(cls, *_: Any, **__: Any) -> Any:
            return failing()

    places = {"read": (os, "read", failing), "stat": (os, "fstat", failing), "map": (mmap, "mmap", Failing)}

    def check(case: tuple[str, Path]) -> None:
        place, path = case
        with monkeypatch.context() as patched:
            patched.setattr(*places[place])
            if place == "map":
                from rnnconvert.containers import reading

                patched.setattr(reading.Mapped, "__new__", failing)
            with pytest.raises(UnreadableError, match=path.name) as caught:
                rc.load(path)
        assert caught.value.exit_code == 3

    each([(place, path) for place in places for path in paths], check, lambda case: f"{case[0]} {case[1].name}")


def test_a_poisoned_folder_of_proofs_proves_nothing(tmp_path: Path) -> None:
    """An entry of the cache that is not a report, says "not equal" or belongs to another proof is ignored; a pipe does not block it."""
    need("onnxruntime", built_in()["onnxruntime-cpu"].absent)
    model, proofs = sources.write(tmp_path / "m.onnx"), tmp_path / "proofs"

    def proved(**settings: Any) -> Any:
        return rc.verify(model, model, on=["onnxruntime-cpu"], cases=["states"], explain=False, cache=proofs, **settings)

    def verdict() -> str:
        return str(proved().verdict)

    def skips() -> bool:
        return "nothing has changed since" in proved().document["summary"]

    honest = verdict()
    (entry,) = proofs.iterdir()
    good = entry.read_text()
    for text in ("", "[" * 100_000, "{}", "null", good.replace(f'"verdict": "{honest}"', '"verdict": "not equal"'), good[: len(good) // 2]):
        entry.write_text(text)
        assert verdict() == honest and "nothing has changed since" not in entry.read_text()
    entry.write_text(good)
    assert skips()
    proved(seed=7)
    (lax,) = set(proofs.iterdir()) - {entry}
    shutil.copy(lax, entry)  # a whole entry, of another proof
    assert not skips()
    entry.unlink()
    os.mkfifo(entry)
    words = ["verify", str(model), str(model), "--on", "onnxruntime-cpu", "--cache", str(proofs)]
    done = subprocess.run([sys.executable, "-m", "rnnconvert", *words], capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode in (0, 2, 3, 74), done.stderr


def test_a_layout_that_was_changed_is_read_or_refused(tmp_path: Path) -> None:
    """What `identify` writes, with bytes and lines of it changed: no fault, no wait, no array outside."""
    text = ROOT / "examples" / "own_layout"
    (layout,) = text.glob("*.toml")
    weights = written(tmp_path / "w.npz", "<")
    content, rng = layout.read_bytes(), random.Random(1)
    lines = content.splitlines(keepends=True)

    def check(number: int) -> None:
        if number % 2:
            changed = mutators.mutated("layout.toml", content, rng)
        else:
            changed = b"".join(rng.choice(lines) if rng.random() < 0.15 else line for line in lines)
        path = tmp_path / "layout.toml"
        path.write_bytes(changed)
        done = call("convert", weights, tmp_path / "o.onnx", "--layout", path, "--force")
        assert done.exit_code in (0, 2, 3, 4), done.output

    each(range(120), check, str)


def test_optimizer_state_of_a_changed_file_is_moved_or_refused(tmp_path: Path) -> None:
    torch = needed("torch", "torch")
    net = torch.nn.LSTM(3, 4)
    optimizer = torch.optim.Adam(net.parameters())
    net(torch.zeros(2, 1, 3))[0].sum().backward()
    optimizer.step()
    torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "m.pt")
    content, rng = (tmp_path / "m.pt").read_bytes(), random.Random(2)
    report = rc.load_into(torch.nn.LSTM(3, 4), tmp_path / "m.pt")

    def check(number: int) -> None:
        path = tmp_path / "changed.pt"
        path.write_bytes(content if number == 0 else mutators.mutated("m.pt", content, rng))
        into = torch.optim.Adam(report.model.parameters())
        try:
            rc.load_optimizer_into(into, path, report)
        except RnnConvertError as error:
            assert error.exit_code in (2, 3, 4) and number

    each(range(80), check, str)


def test_another_version_in_one_folder_keeps_its_files(tmp_path: Path) -> None:
    """A process of an earlier version, with its own code, that writes here keeps its temporary file, and both targets are whole."""
    old = tmp_path / "old"
    shutil.copytree(ROOT / "rnnconvert", old / "rnnconvert", symlinks=False, ignore=shutil.ignore_patterns("__pycache__"))
    version = old / "rnnconvert" / "core" / "version.py"
    assert version.is_file()
    source = sources.write(tmp_path / "m.safetensors")
    waiting = (
        "import sys, rnnconvert as rc\nfrom rnnconvert.containers import files\nfrom pathlib import Path\n"
        "assert rc.__file__.startswith(sys.argv[1])\n"
        "with files.replacing(Path(sys.argv[2])) as file:\n    file.write(b'x' * 100)\n    file.flush()\n    print('open', flush=True)\n"
        "    sys.stdin.readline()\n"
    )
    out = tmp_path / "out"
    out.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", waiting, str(old), str(out / "old.bin")],
        cwd=old,
        env={**os.environ, "PYTHONPATH": str(old)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin and process.stdout and process.stdout.readline() == "open\n"
    rc.convert(source, out / "new.npz", target_format="haiku")
    assert len([file for file in out.iterdir() if file.name.endswith(".part")]) == 1
    process.communicate("\n", timeout=60)
    assert sorted(file.name for file in out.iterdir()) == ["new.npz", "old.bin"] and (out / "old.bin").read_bytes() == b"x" * 100
    assert rc.load(out / "new.npz").layers
