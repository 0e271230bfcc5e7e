"""The files to convert: files, patterns and manifests, each line of which names a source and may name its target and settings."""

from __future__ import annotations

import itertools
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from rnnconvert.batch import folders, stores
from rnnconvert.containers.asking import is_url
from rnnconvert.containers.json_text import fields_of
from rnnconvert.core.errors import MissingFileError, UnreadableError, UsageError
from rnnconvert.core.remedies import Flag
from rnnconvert.core.text_file import read_text
from rnnconvert.files import detect
from rnnconvert.files.targets import files_of
from rnnconvert.language import registry

_LARGEST = 1 << 32
_FIELDS = {"source": str, "target": str, "to": str, "from": str, "set": list, "layers": list, "dtype": str}


@dataclass(frozen=True)
class Item:
    """One file to convert.

    source, target  paths or URLs
    to, read_as     formats; if "", the target's ending or the content decides
    settings        "KEY=VALUE", what the source leaves open
    layers          only these
    dtype           element type to write
    wrong           the fault in a manifest's line; "" for an item
    common          the settings that are for all files: a file that does not ask for one is converted without it
    by_name         whether the source's name made the target's
    """

    source: str
    target: str
    to: str = ""
    read_as: str = ""
    settings: tuple[str, ...] = ()
    layers: tuple[str, ...] = ()
    dtype: str = ""
    wrong: str = ""
    common: tuple[str, ...] = ()
    by_name: bool = True

    @property
    def asked(self) -> list[Any]:
        """All that decides what is written, beside the source's content."""
        return [self.target, self.to, self.read_as, list(self.settings), list(self.layers), self.dtype]

    @property
    def files(self) -> tuple[str, ...]:
        """The paths or URLs of all files that are written: the target, then those that belong next to it."""
        path = Path(self.name)
        try:
            return self.with_files(files_of(detect.target(path, self.to or None), path))
        except UsageError:  # which says, when it is converted, that nothing is written under that name
            return (self.target,)

    @property
    def name(self) -> str:
        """The file name of the target."""
        return stores.last(self.target) if is_url(self.target) else Path(self.target).name

    def with_files(self, files: Sequence[Path]) -> tuple[str, ...]:
        """Return the paths or URLs of files by their names: of the target, which comes first, and of those next to it."""
        folder = stores.place(self.target).removesuffix(self.name)
        return (self.target, *(folder + file.name for file in files[1:]))

    @property
    def absolute(self) -> Item:
        """The same item for a process that works in another folder."""
        if self.wrong:
            return self
        source, target = (place if is_url(place) else str(Path(place).absolute()) for place in (self.source, self.target))
        return replace(self, source=source, target=target)

    def as_named(self, text: str) -> str:
        """Return a text in which the source and the target go by their own names, where another folder needed longer ones."""
        for long, short in ((self.absolute.source, self.source), (self.absolute.target, self.target)):
            text = text.replace(long, short) if long != short else text
        return text


def check_targets(items: Sequence[Item]) -> None:
    """Raise UsageError if a file of this disk would be replaced. Targets behind URLs are not checked."""
    here = [file for item in items if not item.wrong for file in item.files if not is_url(file)]
    there = [target for target in here if Path(target).exists()]
    if there:
        more = f", and {len(there) - 1:,} more of the targets" if len(there) > 1 else ""
        raise UsageError(f"{there[0]} already exists{more}. Use {Flag('force')} to replace what is there")


def check_others(items: Sequence[Item], written: Mapping[str, Sequence[str]]) -> None:
    """Raise UsageError if a file would be replaced that belongs to another target of the same journal.

    written  the files of each target that is done
    """
    owners = {_place(file): target for target, files in written.items() for file in files}
    for item in items:
        for file in () if item.wrong else item.files:
            owner = owners.get(_place(file), item.target)
            if _place(owner) != _place(item.target):
                raise UsageError(
                    f"{item.source}: {file} would be replaced, which belongs to {owner}. Choose another folder with "
                    f"{Flag('out')}, or use {Flag('force')}"
                )


class Listing(NamedTuple):
    """The files to convert, and how many other files the folders hold, by their endings."""

    items: list[Item]
    left_out: Counter[str]


def items(words: Sequence[str], folder: str, to: str, ending: str, settings: tuple[str, ...] = ()) -> Listing:
    """Return the items that files, folders, patterns and manifests (.jsonl, .txt) name, each with its target in a folder.

    What a folder or a pattern finds below has its target in the same place below: `a/b/m.pt` of `a` becomes `b/m.onnx`.

    Raises MissingFileError if no file fits, UsageError if two sources have one target.
    """
    listed: list[Item] = []
    left_out: Counter[str] = Counter()

    def below(names: Iterable[str], root: str) -> Iterator[Item]:
        for name in names:
            inside = name.removeprefix(root).replace(os.sep, "/").lstrip("/").rpartition("/")[0] if root != "." else name.rpartition("/")[0]
            yield Item(name, _target(name, _join(folder, inside) if inside else folder, ending), to, settings=settings, common=settings)

    for word in words:
        if word.endswith((".jsonl", ".txt")) and not is_url(word):
            listed += _manifest(Path(word), folder, to, ending, settings)
        elif stores.is_pattern(word):
            listed += below(stores.matching(word), stores.root_of(word) if is_url(word) else str(Path(stores.root_of(word))))
        elif not is_url(word) and folders.is_tree(Path(word)):
            tree = folders.ModelTree(Path(word), Path(folder))
            left_out += tree.left_out
            listed += below(map(str, tree.models), str(Path(word)))
        else:
            listed += below([word], word.rpartition("/")[0])
    if not listed:
        raise _nothing(words, left_out)
    return Listing(_apart(_distinct(listed, folder, ending)), left_out)


def _nothing(words: Sequence[str], left_out: Counter[str]) -> UsageError | MissingFileError | UnreadableError:
    """Return why there is nothing to convert."""
    empty = [word for word in words if Path(word).is_file()]
    if empty:
        return UsageError(f"{empty[0]} names no source. Write a source a line")
    trees = [word for word in words if Path(word).is_dir()]
    if trees:
        files = left_out.total()
        held = f"{files:,} other file{'' if files == 1 else 's'} ({', '.join(left_out)})" if files else "no file"
        return UnreadableError(trees[0], f"the folder holds no model, but {held}", "Name files or a pattern, to have each of them tried.")
    return MissingFileError(" ".join(words))


def _distinct(listed: Sequence[Item], folder: str, ending: str) -> list[Item]:
    """Return items with targets of their own, where their sources' names alone would give one for several.

    They keep the endings of their sources (`m.pt.onnx`, `m.h5.onnx`), or where these are one, their places (`a/m.onnx`, `b/m.onnx`).
    """
    groups: dict[str, dict[str, Item]] = {}
    for item in listed:
        if not item.wrong:
            groups.setdefault(_place(item.target), {}).setdefault(_place(item.source), item)
    targets: dict[tuple[str, str], str] = {}
    for target, group in groups.items():
        if len(group) > 1 and all(item.by_name for item in group.values()):
            targets |= {(target, source): name for source, name in _named_apart(group, folder, ending).items()}
    return [
        item if item.wrong else replace(item, target=targets.get((_place(item.target), _place(item.source)), item.target))
        for item in listed
    ]


def _named_apart(group: Mapping[str, Item], folder: str, ending: str) -> dict[str, str]:
    """Return a target for each of several sources, by these; none where nothing keeps them apart."""
    with_endings = {
        source: item.target.removesuffix(item.name) + stores.last(stores.place(item.source)) + ending for source, item in group.items()
    }
    parts = {source: stores.place(item.source).replace(os.sep, "/").split("/")[:-1] for source, item in group.items()}
    shared = sum(1 for _ in itertools.takewhile(lambda names: len({*names}) == 1, zip(*parts.values(), strict=False)))
    placed = {source: _join(folder, "/".join((*parts[source][shared:], item.name))) for source, item in group.items()}
    return next((names for names in (with_endings, placed) if len({*names.values()}) == len(group)), {})


def _apart(all_items: Sequence[Item]) -> list[Item]:
    """Return items without repeated ones. Raises UsageError if one would overwrite another's target or any source."""
    sources = {_place(item.source): item.source for item in all_items if not item.wrong}
    by_place: dict[str, Item] = {}
    distinct = []
    collisions: list[tuple[Item, Item, str]] = []
    for item in all_items:
        if item.wrong:
            distinct.append(item)
            continue
        places = {_place(file): file for file in item.files}
        for place in places:
            if place in sources:
                raise UsageError(
                    f"{item.source} would be written over the source {sources[place]}. Choose another folder with {Flag('out')}"
                )
        shared = next((place for place in places if place in by_place), None)
        other = item if shared is None else by_place[shared]
        by_place |= {place: other for place in places if place not in by_place}
        if shared is None:
            distinct.append(item)
        elif _place(other.source) != _place(item.source) or _place(other.target) != _place(item.target):
            collisions.append((other, item, places[shared]))
        elif other.asked[1:] != item.asked[1:]:
            raise UsageError(
                f"{item.source} would be written to {item.target} twice, with different settings. Name the targets in a manifest"
            )
    if collisions:
        raise _collided(collisions)
    return distinct


_COLLISIONS = 20
"""How many collisions an error lists."""


def _collided(collisions: Sequence[tuple[Item, Item, str]]) -> UsageError:
    """Return the error of files that would be written over each other, with a line of a manifest that keeps each apart."""
    other, item, file = collisions[0]
    details = []
    for _, later, _ in collisions[:_COLLISIONS]:
        folder = stores.place(later.source).replace(os.sep, "/").rpartition("/")[0].rpartition("/")[2] or "second"
        details.append(json.dumps({"source": later.source, "target": f"{folder}/{later.name}"}, ensure_ascii=False))
    more = f", and so for {len(collisions) - 1:,} more" if len(collisions) > 1 else ""
    left = [f"and {len(collisions) - _COLLISIONS:,} more"] if len(collisions) > _COLLISIONS else []
    return UsageError(
        f"{other.source} and {item.source} would both be written to {file}{more}. Name the folder that they are in, "
        "or their targets in a manifest, a .jsonl with a line for each:",
        details=[*details, *left],
    )


def _place(name: str) -> str:
    """Return the one name of a file that may have several."""
    return name if is_url(name) else os.path.realpath(name)


def _manifest(path: Path, folder: str, to: str, ending: str, settings: tuple[str, ...]) -> list[Item]:
    result = []
    for number, line in enumerate(read_text(path, _LARGEST).splitlines(), 1):
        if not line.strip() or (path.suffix == ".txt" and line.startswith("#")):
            continue
        try:
            result.append(_item(line.strip(), path.suffix == ".jsonl", folder, to, ending, settings))
        except (ValueError, RecursionError, UnreadableError) as error:
            result.append(Item(f"{path}:{number}", "", wrong=f"line {number} of {path}: {error}"))
    return result


def _item(line: str, as_json: bool, folder: str, to: str, ending: str, settings: tuple[str, ...]) -> Item:
    fields = json.loads(line, object_pairs_hook=fields_of("it")) if as_json else {"source": line}
    if not isinstance(fields, dict) or not isinstance(fields.get("source"), str) or not fields["source"]:
        raise ValueError('expected an object with a source, as in {"source": "model.pt"}')
    for key, value in fields.items():
        if key not in _FIELDS:
            raise ValueError(f"unknown field {key!r}, expected some of {', '.join(_FIELDS)}")
        if not isinstance(value, _FIELDS[key]) or (isinstance(value, list) and not all(isinstance(v, str) for v in value)):
            raise ValueError(f"{key} is {value!r}, expected {'a list of texts' if _FIELDS[key] is list else 'text'}")
    if any("\0" in fields.get(key, "") for key in ("source", "target")):
        raise ValueError("a name with a zero character, which no file has")
    target = fields.get("target") or _target(fields["source"], folder, ending)
    if not is_url(target) and not Path(target).is_absolute() and "target" in fields:
        target = _join(folder, target)
    return Item(
        fields["source"],
        target,
        fields.get("to", to),
        fields.get("from", ""),
        (*settings, *fields.get("set", ())),
        tuple(fields.get("layers", ())),
        fields.get("dtype", ""),
        common=settings,
        by_name="target" not in fields,
    )


def _target(source: str, folder: str, ending: str) -> str:
    name = stores.place(source).partition("::")[0].rstrip("/").replace("\\", "/").rpartition("/")[2]
    endings = {end for card in registry.cards().values() for end in card.endings if name.lower().endswith(end)}
    end = max(endings, key=len, default=Path(name).suffix)
    return _join(folder, name[: len(name) - len(end)] + ending)


def _join(folder: str, name: str) -> str:
    return f"{folder.rstrip('/')}/{name}" if is_url(folder) else str(Path(folder) / name)
