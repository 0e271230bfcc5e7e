"""Build the wheel and the sdist, the same byte for byte wherever the same commit is built with the same setuptools.

python .ci/build.py [FOLDER]

Times come from SOURCE_DATE_EPOCH: without it, from the last commit, or from the newest file where there is no repository.
Needs setuptools 77 or newer.
"""

import gzip
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MADE = ("__pycache__", "*.pyc", "*.egg-info", "build", "dist", "site", ".git", ".venv*", ".environments", ".*_cache", ".hypothesis")


def files() -> list[Path]:
    """Return the project's files: those that git tracks or would add or, without a repository, all that nothing generated."""
    if (ROOT / ".git").exists():
        words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        return sorted(Path(name) for name in listed.split("\0") if name and (ROOT / name).exists())
    return sorted(
        path.relative_to(ROOT)
        for path in ROOT.rglob("*")
        if not path.is_dir() and not any(one.match(pattern) for one in lineage(path) for pattern in MADE)
    )


def lineage(path: Path) -> list[Path]:
    """Return a path's own name and the folders that it is in, inside the project."""
    return [Path(part) for part in path.relative_to(ROOT).parts]


def epoch(tree: Path) -> int:
    """Return the time that everything gets."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(given)
    if (ROOT / ".git").exists():
        words = ["git", "log", "-1", "--format=%ct"]
        return int(subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout)
    return max(int(path.stat().st_mtime) for path in tree.rglob("*") if path.is_file())


def copied(tree: Path) -> None:
    """Copy the project, with modes that do not depend on the umask."""
    for name in files():
        source, target = ROOT / name, tree / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target, follow_symlinks=False)
        if not target.is_symlink():
            target.chmod(0o755 if os.access(source, os.X_OK) else 0o644)


def normalized(sdist: Path, time: int) -> None:
    """Write an sdist again: its members by name, of one time and nobody in particular."""
    with tarfile.open(sdist) as archive:
        members = [(one, archive.extractfile(one)) for one in sorted(archive.getmembers(), key=lambda one: one.name)]
        with (
            sdist.with_suffix(".new").open("wb") as raw,
            gzip.GzipFile("", "wb", 9, raw, mtime=time) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as again,
        ):
            for member, data in members:
                member.mtime, member.uid, member.gid, member.uname, member.gname = time, 0, 0, "", ""
                member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
                member.pax_headers = {}
                again.addfile(member, data)
    sdist.with_suffix(".new").replace(sdist)


def build(folder: Path) -> None:
    """Write the wheel and the sdist into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as made:
        tree = Path(made) / "rnnconvert"
        copied(tree)
        time = epoch(tree)
        environment = {**os.environ, "SOURCE_DATE_EPOCH": str(time), "PYTHONHASHSEED": "0"}
        code = "import sys, setuptools.build_meta as b; print(b.{}(sys.argv[1]), file=sys.stderr)"
        os.umask(0o022)
        for step in ("build_sdist", "build_wheel"):
            words = [sys.executable, "-c", code.format(step), made]
            done = subprocess.run(words, cwd=tree, env=environment, capture_output=True, text=True)
            if done.returncode:
                sys.exit(done.stderr)
        for path in sorted(Path(made).iterdir()):
            if path.is_file():
                if path.name.endswith(".tar.gz"):
                    normalized(path, time)
                shutil.copyfile(path, folder / path.name)
                print(folder / path.name)


if __name__ == "__main__":
    build(Path(sys.argv[1] if len(sys.argv) > 1 else "dist").resolve())
