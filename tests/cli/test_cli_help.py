"""The help of every command: what it does, examples, options by what they are for, notes; and what a wrong word is told."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner

import rnnconvert as rc
from rnnconvert.cli.help import GROUPS, examples_and_notes, grouped
from rnnconvert.cli.main import command_sections, main
from tests import ROOT
from tests.helpers.judging import batch_first
from tests.helpers.sources import stack, write


def commands() -> Iterator[click.Command]:
    """Every command, and those below one."""
    top = click.Context(main)
    listed = [command for names in command_sections().values() for name in names if (command := main.get_command(top, name))]
    for command in listed:
        yield command
        yield from command.commands.values() if isinstance(command, click.Group) else ()


def printed(*words: object, code: int = 0) -> str:
    result = CliRunner().invoke(main, [*map(str, words)])
    assert result.exit_code == code, result.output
    return result.output


def test_every_help_has_one_order() -> None:
    for command in commands():
        text = command.get_help(click.Context(command, info_name=command.name))
        examples, _ = examples_and_notes(command)
        marks = ["Usage: ", *(["  Examples:"] if examples else []), *(f"{title}:\n" for title in grouped(command, click.Context(command)))]
        places = [text.index(mark) for mark in marks]
        assert places == sorted(places), command.name


def test_every_option_is_in_one_group() -> None:
    seen = set()
    for command in commands():
        ctx = click.Context(command)
        rows = [first for listed in grouped(command, ctx).values() for first, _ in listed]
        visible = [param for param in command.get_params(ctx) if isinstance(param, click.Option) and not param.hidden]
        assert len(rows) == len(visible), command.name
        seen |= {flag for param in visible for flag in param.opts}
    flags = [flag for listed in GROUPS.values() for flag in listed.split()]
    assert len(flags) == len(set(flags)) and set(flags) <= seen


@pytest.mark.parametrize("words", [("transplant", "a.pt"), ("batch", "."), ("executors", "add", "x"), ("layout", "pytorch", "--cell", "x")])
def test_wrong_usage_is_one_line_without_escapes(words: tuple[str, ...]) -> None:
    last = printed(*words, code=2).splitlines()[-1]
    assert last.startswith("error: ") and "\\" not in last


def test_a_choice_that_is_missing_is_one_line() -> None:
    @click.command()
    @click.option("--cell", type=click.Choice(["gru", "lstm"]), required=True)
    def needs_a_choice(cell: str) -> None:
        """Do nothing."""

    main.add_command(needs_a_choice, "layout-of-a-test")
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(sys.modules["rnnconvert.cli.main"]._COMMANDS, "layout-of-a-test", "")
            assert printed("layout-of-a-test", code=2).splitlines()[-1] == "error: Missing option '--cell'. Choose from: gru, lstm"
    finally:
        del main.commands["layout-of-a-test"]


def test_layout_has_a_default_and_takes_capitals() -> None:
    assert printed("layout", "pytorch").startswith("pytorch.lstm: ")
    assert printed("layout", "pytorch", "--cell", "GRU").startswith("pytorch.gru: ")


def test_formats_of_an_ending() -> None:
    text = printed("formats", ".jld2")
    assert [name for name in ("flux", "knet", "lux") if f"  {name} " in text] == ["flux", "knet", "lux"] and "keras" not in text
    assert "no format has the ending .nothing" in printed("formats", ".nothing", code=2)


def test_identify_says_what_to_type_next(tmp_path: Path) -> None:
    layer = stack(name="")
    arrays = rc.pack(layer, "pytorch")
    assert isinstance(arrays, dict)
    np.save(tmp_path / "flat.npy", np.concatenate([np.ravel(array) for array in arrays.values()]))
    text = printed("identify", tmp_path / "flat.npy")
    assert text.count("the length of the vector allows these sizes, as it does many others") == 1
    x = np.random.default_rng(0).normal(size=(2, 5, layer.input_size)).astype(np.float32)
    np.savez(tmp_path / "io.npz", x=x, y=batch_first(layer, x))
    visible = printed("identify", tmp_path / "flat.npy", "--io", tmp_path / "io.npz")
    assert "to write it as a model: rnnconvert identify" in visible and "--convert model.pt" in visible
    wrong = printed("identify", tmp_path / "flat.npy", "--io", tmp_path / "io.npz", "-o", "found.pt", code=2)
    assert "give it a name that ends in .toml. To write a model: --convert found.pt" in wrong


def test_results_are_kept_under_the_ending_that_verify_knows(tmp_path: Path) -> None:
    source = write(tmp_path / "a.safetensors")
    assert "results are kept in a .safetensors file" in printed("run", source, "--save", tmp_path / "results", code=2)


def test_an_editable_install_is_a_path_that_type_checkers_follow() -> None:
    """setup.py takes the packages below rnnconvert, through the links, where it installs an editable one."""
    code = (
        "import sys, setuptools; got = {}; setuptools.setup = got.update; sys.argv = ['setup.py', 'editable_wheel']; "
        "exec(open('setup.py').read()); print(got['package_dir'])"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "{'': '.'}"
