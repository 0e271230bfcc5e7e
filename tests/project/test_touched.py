"""A change's tests: those of its package or framework, and of what its tests share."""

from __future__ import annotations

import pytest

from tests import ROOT
from tests.touched import touched, windows


@pytest.mark.parametrize(
    ("changed", "tests"),
    [
        ("formats/keras/upgrade/model.py", ["tests/formats/keras"]),
        ("formats/mlx.py", ["tests/formats/mlx"]),
        ("formats/arraymancer.py", ["tests/formats"]),
        ("rnnconvert/judging/comparison.py", ["tests/judging"]),
        ("cli/convert.py", ["tests/cli"]),
        ("docs/whole.md", ["tests/project"]),
        ("tests/judging/test_claims.py", ["tests/judging/test_claims.py"]),
        ("tests/helpers/store_emulators.py", ["tests/batch/test_other_stores.py"]),
        ("LICENSE", []),
    ],
)
def test_a_changed_file_has_the_tests_of_its_folder(changed: str, tests: list[str]) -> None:
    assert touched([changed]) == tests


def test_a_folder_takes_its_modules_in() -> None:
    assert touched(["formats/keras/read.py", "tests/formats/keras/test_upgrade.py"]) == ["tests/formats/keras"]


def test_every_package_and_framework_has_a_folder_of_tests() -> None:
    rooms = {path.name for path in (ROOT / "formats").iterdir() if (path / "__init__.py").exists()}
    packages = {path.name for path in (ROOT / "rnnconvert").iterdir() if (path / "__init__.py").exists() and not path.is_symlink()}
    tests = ROOT / "tests"
    assert {name for name in packages if not (tests / name).is_dir()} == {"modules"}  # its classes are the frameworks' modules
    assert {name for name in rooms if not (tests / "formats" / name).is_dir()} == {"guitarml", "lasagne", "nam", "onednn"}


def test_words_that_a_message_loses_have_the_tests_that_state_them() -> None:
    removed, added = 'raise UsageError(f"{flag} lays {count} eggs on {len(names)} nests {what}")', 'raise UsageError(f"{count} eggs")'
    assert touched([], [removed], [added]) == ["tests/project/test_touched.py"]  # which states: "lays 3 eggs on 2 nests"
    assert touched([], [removed], [removed.replace("UsageError", "RefusedError")]) == []
    assert ("{}", "eggs", "on", "{}") in windows([removed])
