"""The pages of commands are true: what they need installed, and that what they name can be typed."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from rnnconvert.cli.main import main
from tests import ROOT

CONTEXT = click.Context(main)
COMMANDS = {name: main.get_command(CONTEXT, name) for name in main.list_commands(CONTEXT)}
PAGE = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
NEEDS = {tuple(re.findall(r"`([a-z]+)`", names)): need for names, need in re.findall(r"^\| ((?:`[a-z]+`,? ?)+) \| (.*) \|$", PAGE, re.M)}
FRAMEWORKS = ["torch", "tensorflow", "keras", "tf_keras", "jax", "flax", "haiku", "equinox", "onnxruntime", "openvino", "ncnn"]


def test_every_command_is_in_one_row_of_what_it_needs() -> None:
    assert sorted(name for names in NEEDS for name in names) == sorted(COMMANDS)


def test_those_that_need_frameworks_with_verify_alone_have_that_option() -> None:
    verifying = {name for name, command in COMMANDS.items() if command and any("--verify" in option.opts for option in command.params)}
    assert verifying == {name for names, need in NEEDS.items() if "--verify" in need for name in names}


CALLS = """
demo
inspect examples/encoder.keras --targets
view examples/encoder.keras -o page.html
identify examples/own_layout/trained.npz
map rnnconvert-demo/model.keras rnnconvert-demo/wrong.pt -o mapping.yaml
convert examples/encoder.keras encoder.onnx --layer encoder
diff examples/encoder.keras encoder.onnx --layer encoder
diagnose examples/encoder.keras encoder.onnx --layer encoder
formats keras
layout pytorch --cell lstm --input-size 3 --hidden-size 4
executors
run examples/encoder.keras --layer encoder --on torch-cpu --save results.safetensors
verify examples/encoder.keras encoder.onnx --layer encoder --report report.json
report report.json -o report.html
batch examples/encoder.keras --to onnx --out exported --jobs 1
transplant rnnconvert-demo/model.keras --into rnnconvert-demo/wrong.pt -o filled.pt
scaffold examples/encoder.keras --to pytorch
export examples/encoder.keras whole.onnx
upgrade examples/old_tagger.h5 new.keras
check --config examples/ci/rnnconvert.toml
fuse examples/exported.onnx -o fast.onnx
"""
"""A call of every command."""

SCRIPT = """
import sys
sys.modules.update(dict.fromkeys({frameworks!r}))  # imports of them fail
from click.testing import CliRunner
from rnnconvert.cli.main import main
for call in {calls!r}:
    print(call[0], CliRunner().invoke(main, call).exit_code)
"""


def test_without_any_framework_a_command_does_what_the_page_says(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    calls = [shlex.split(call) for call in CALLS.strip().splitlines()]
    script = SCRIPT.format(frameworks=FRAMEWORKS, calls=calls)
    process = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    exits = dict(line.split() for line in process.stdout.splitlines())
    needing = {name for names, need in NEEDS.items() if not need.startswith("nothing") for name in names}
    assert exits == {name: "5" if name in needing else "0" for name in COMMANDS}


@pytest.mark.parametrize("page", [PAGE, (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")], ids=["commands", "reference"])
def test_what_the_page_names_can_be_typed(page: str) -> None:
    typed = re.findall(r"`rnnconvert ([a-z].*?)`|^    rnnconvert ([a-z].*)$", page, re.M)
    assert len(typed) > len(COMMANDS)
    for words in (shlex.split(re.sub(r"[<>|].*", "", inline or block)) for inline, block in typed):
        command = COMMANDS[words[0]]
        assert command is not None
        context = click.Context(command, info_name=words[0], resilient_parsing=True)
        command.make_parser(context).parse_args(list(words[1:]))  # raises for an option that there is not
