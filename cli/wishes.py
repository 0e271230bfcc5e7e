"""The wishes on the command line: each input with its output."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from rnnconvert.cli.streams import STREAM
from rnnconvert.core.errors import UsageError


class Wish(NamedTuple):
    """The value of --to: a format, and an ending if its usual one is not meant."""

    format: str | None
    ending: str

    @classmethod
    def of(cls, word: str | None) -> Wish:
        """Return the meaning of FORMAT or FORMAT.ENDING; any other word is kept, to be judged by code that knows the formats."""
        if word is None:
            return cls(None, "")
        from rnnconvert.files.adapter import adapter, names
        from rnnconvert.language import registry

        name, dot, rest = word.partition(".")
        if dot and name in names():
            card = registry.cards().get(name)
            endings = adapter(name).SUFFIXES if card is None else card.written
            if f".{rest}" not in endings:
                raise UsageError(f"{name} has no files with the ending .{rest}. Choose one of: {', '.join(endings)}")
            return cls(name, f".{rest}")
        return cls(word, "")

    def name(self, stem: str) -> str:
        """Return the name of a file. Raises UsageError for a format that is only read."""
        if self.format is None:
            return stem
        if self.ending:
            return stem + self.ending
        from rnnconvert.files.adapter import adapter

        endings = adapter(self.format).SUFFIXES
        if not endings:
            raise UsageError(f"{self.format} files are only read, not written")
        return stem + endings[0]


def paired(paths: tuple[str, ...], out_dir: str | None, wish: Wish, force: bool) -> list[tuple[str, str]]:
    """Return each source with its target. Raises UsageError where a target's name is open, or shared."""
    if out_dir is None:
        if len(paths) != 2:
            raise UsageError(
                f"got {len(paths)} paths, expected SOURCE and TARGET. To convert several files, give a folder: --out-dir FOLDER"
                if len(paths) > 2
                else "TARGET is missing: give SOURCE and TARGET, or --out-dir FOLDER"
            )
        source, target = paths
        if target == STREAM and wish.format is None:
            raise UsageError("stdout has no name that shows a format. Choose one with --to")
        is_folder = Path(target).is_dir() or target.endswith("/")
        return [(source, _named(source, target, wish) if is_folder and wish.format is not None else target)]
    if wish.format is None:
        raise UsageError("--out-dir needs --to, which decides the ending of the files")
    sources: dict[str, str] = {}
    folder = Path(out_dir).resolve()
    inside = [source for source in paths if folder in (Path(source).absolute().parent, Path(source).resolve().parent)]
    if force and inside:
        raise UsageError(f"--force could replace {inside[0]}, which is in {out_dir} itself. Choose another folder")
    for source in paths:
        target = _named(source, out_dir, wish)
        if target in sources:
            raise UsageError(f"{sources[target]} and {source} would both be written to {target}. Rename one, or convert it by itself")
        sources[target] = source
    return [(source, target) for target, source in sources.items()]


def _named(source: str, folder: str, wish: Wish) -> str:
    """Return a path in a folder: the source's name, with the ending of what is written."""
    from rnnconvert.language import registry

    name = "stdin" if source == STREAM else Path(source).name or Path(source).resolve().name
    endings = {end for card in registry.cards().values() for end in card.endings if name.lower().endswith(end)}
    end = max(endings, key=len, default="" if Path(source).is_dir() else Path(name).suffix)
    return str(Path(folder) / wish.name(name[: len(name) - len(end)]))
