"""No reader's and no writer's work grows faster than what it reads or writes (fuzz.doubling)."""

from __future__ import annotations

import itertools
import json
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fuzz import commands, doubling, seeds
from fuzz.doubling import Case, Work
from rnnconvert.containers import apart, json_file, msgpack_file, pickled_arrays, safetensors
from rnnconvert.core.errors import UnreadableError
from rnnconvert.core.names import first_twice
from rnnconvert.formats.paddle import paddle_params
from rnnconvert.language import fitting, registry
from rnnconvert.models.load import transplant_file
from tests.helpers import drawn, every_command
from tests.helpers.drawn import each

SECONDS = 0.3 if drawn.LONG else 0
"""With --long processor time is looked at, too."""


def check(case: Case) -> None:
    growth = doubling.measure(case, SECONDS)
    assert growth is None or not growth.quadratic, growth


@pytest.mark.parametrize(("format", "ending"), drawn.drawn(doubling.written(), 2, "doubling"))
def test_twice_as_much_is_twice_the_work(format: str, ending: str, tmp_path: Path) -> None:
    """Layers, names and other tensors of a format, written, read and inspected; and its smallest file with something in it n times."""
    cases = list(doubling.writers(tmp_path, [(format, ending)]))
    if not cases:  # an ending that is only read
        return
    each(drawn.drawn(cases, 4, f"doubling {format}{ending}"), check, lambda case: case.name)
    path = next((tmp_path / f"{format}{ending}").iterdir())
    if path.is_file():
        seed = seeds.Seed(format, path.name, {file.name: file.read_bytes() for file in path.parent.iterdir()}, format)
        each(doubling.readers([seed], 20 if drawn.LONG else 2, drawn.SEED), check, lambda case: case.name)


def test_files_of_every_kind_are_read_in_proportion(tmp_path: Path) -> None:
    kinds = {*seeds.OTHERS, *(seeds.kind_of(f"m{ending}") for _, ending in doubling.written())}
    files = seeds.build(tmp_path, corpus=False, kinds=() if drawn.LONG else drawn.drawn(sorted(kinds), 1, "kinds"))
    cases = doubling.readers(files, 3, drawn.SEED)
    each(drawn.drawn(cases, 4, "files"), check, lambda case: case.name)


def test_no_commands_work_grows_faster_than_its_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers, alike and of different sizes, names, operators, outputs and nesting, for every command that click lists."""
    monkeypatch.setattr(apart, "is_possible", lambda: False)  # what reads HDF5 counts, too
    each(drawn.drawn(commands.cases(), 2, "commands"), check, lambda case: case.name)


def test_every_command_that_reads_a_model_is_doubled() -> None:
    doubled = {case.name.partition(": ")[0] for case in commands.cases()}
    assert doubled | {*commands.NO_MODEL} == {*every_command.commands()}


def test_what_is_quadratic_is_found() -> None:
    """One in lines of Python, one inside single calls; and the same work in proportion is not."""

    def lines(power: int) -> Case:
        return Case("planted", lambda folder, n: lambda: first_twice(map(str, range(n**power))), 8, 64)

    def calls(quadratic: bool) -> Case:
        def prepare(folder: Path, n: int) -> Work:
            held = [object() for _ in range(n)] if quadratic else [object()] * n
            return lambda: [item in held for item in held]

        return Case("planted", prepare, 8, 1 << 14)

    growths = {(kind, power): doubling.measure(make, seconds) for kind, power, make, seconds in (
        ("lines", 1, lines(1), 0), ("lines", 2, lines(2), 0), ("calls", 1, calls(False), 0.02), ("calls", 2, calls(True), 0.05),
    )}  # fmt: skip
    for (kind, power), growth in growths.items():
        assert growth is not None and growth.quadratic == (power == 2), (kind, power, growth)
    assert growths["calls", 2].times > doubling.MOST_TIME > growths["calls", 2].lines  # type: ignore[union-attr]


def test_every_format_that_is_written_is_doubled(tmp_path: Path) -> None:
    """Of each at least layers or a stack of them can be made."""
    formats = {format: [ending for _, ending in pairs] for format, pairs in itertools.groupby(doubling.written(), lambda pair: pair[0])}
    for format, endings in drawn.drawn(formats.items(), 4, "doubled"):
        (tmp_path / format).mkdir()
        models = [small for end in endings if (small := doubling.small(format, end, tmp_path / format))]
        assert models, format


def test_a_tensors_name_is_taken_apart_once(tmp_path: Path) -> None:
    """A name of 16,000 words with dots between them took half a minute, in single calls."""
    small = doubling.small("pytorch", ".safetensors", tmp_path)
    assert small is not None
    make, first, last = doubling.GROWING["a tensor's name of many dots"]
    growth = doubling.measure(Case("dots", doubling._READING(small, make), first, last), 0.1)
    assert growth is not None and not growth.quadratic, growth


def test_arrays_that_no_layer_can_have_are_not_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lone bias was tried as ten layouts, in every size that it may show: layers of other sizes took twenty times as long."""
    tried: list[object] = []

    def candidates(*words: object) -> Iterator[Any]:
        tried.append(words)
        return iter(())

    monkeypatch.setattr(fitting, "candidates", candidates)
    for layout in registry.layouts().values():
        for tensor in layout.tensors:
            if not tensor.part_names >= {"input", "recurrent"} and "{" not in tensor.name:
                fitting.fits(layout, {tensor.name: (777, 777)})
    assert not tried


def test_a_transplant_takes_as_long_as_its_models_have_layers() -> None:
    """Layers of one size, with names in which only the prefix differs."""

    def prepare(folder: Path, n: int) -> Work:
        arrays = {
            f"{number}.{key}": np.zeros(shape, np.float32) for number in range(n) for key, shape in (("weight", (2, 2)), ("bias", (2,)))
        }
        for name in ("layers", "blocks"):
            safetensors.write(folder / f"{name}.safetensors", {f"{name}.{key}": array for key, array in arrays.items()}, {})
        files = [folder / f"{name}.safetensors" for name in ("layers", "blocks")]
        return lambda: transplant_file(files[0], files[1], folder / "filled.safetensors", dry_run=True, strict=False)

    growth = doubling.measure(Case("layers of a transplant", prepare, 8, 256), 0)
    assert growth is not None and not growth.quadratic, growth


def as_json(path: Path, tree: Any) -> None:
    path.write_text(json.dumps(tree))


def as_pickle(path: Path, tree: Any) -> None:
    path.write_bytes(pickle.dumps(tree, 4))


READERS: dict[str, tuple[Callable[[Path, Any], None], Callable[[Path], object]]] = {
    ".json": (as_json, lambda path: json_file.arrays_in(json_file.read(path), path)),
    ".msgpack": (msgpack_file.write, msgpack_file.read),
    ".pkl": (as_pickle, pickled_arrays.read),
    ".pdparams": (as_pickle, paddle_params.read),
}


@pytest.mark.parametrize("ending", READERS)
def test_a_long_key_is_not_copied_for_each_value_below_it(ending: str, tmp_path: Path) -> None:
    """Ten million letters above some thousand numbers took all memory."""
    write, read = READERS[ending]
    value = [1.0] if ending == ".json" else np.ones(1, np.float32)
    write(tmp_path / f"a{ending}", {"params": {"k" * 4000: {"a": value}}})
    read(tmp_path / f"a{ending}")
    write(tmp_path / f"a{ending}", {"params": {"k" * 5000: {"a": value}}})
    with pytest.raises(UnreadableError, match="characters, at most 4,096 are read"):
        read(tmp_path / f"a{ending}")
