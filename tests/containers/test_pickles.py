"""Pickles are read as data: containers are built, and nothing that they name is ever called."""

from __future__ import annotations

import argparse
import contextlib
import enum
import os
import pickle
import pickletools
from collections import Counter, OrderedDict, defaultdict
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rnnconvert.containers import pickles
from rnnconvert.containers.numpy_values import numpy_value
from rnnconvert.containers.pickle_values import Foreign, Global
from rnnconvert.core.errors import RnnConvertError, UnreadableError
from tests.helpers.drawn import LONG


def load(data: bytes) -> Any:
    return pickles.load(data, "file.pkl")[0]


class Point:
    """A class that a pickle names; reading it must not make one."""

    count = 0

    def __init__(self, x: int = 0) -> None:
        self.x = x

    def __setstate__(self, state: dict[str, int]) -> None:
        Point.count += 1


class Colour(enum.Enum):
    RED = 1


class Shell:
    """What pickles as a call of a function, with these arguments."""

    def __init__(self, function: Any, *args: Any) -> None:
        self.call = (function, args)

    def __reduce__(self) -> Any:
        return self.call


PLAIN = {
    "numbers": [0, 1, 255, 256, 65536, -1, 2**40, -(2**70), 1.5, True, False, None],
    "text": ("", "gate", "é漢", "a\nb'"),
    "bytes": [b"", b"abc", b"x" * 300],
    "nested": {"a": {"b": [{}, [], ()]}, 3: "int key"},
}


@pytest.mark.parametrize("protocol", range(6))
def test_plain_values_are_what_pickle_makes_of_them(protocol: int) -> None:
    value = PLAIN if protocol > 2 else {key: part for key, part in PLAIN.items() if key != "bytes"}
    assert load(pickle.dumps(value, protocol)) == value


@pytest.mark.parametrize("protocol", range(6))
def test_containers_of_the_standard_library(protocol: int) -> None:
    value: list[Any] = [OrderedDict(a=1, b=[2]), defaultdict[str, Any](list, c=3), Counter("aab"), {4}, frozenset({5})]
    expected = [{"a": 1, "b": [2]}, {"c": 3}, {"a": 2, "b": 1}, [4], [5]]
    assert load(pickle.dumps(value, protocol)) == expected


def test_shared_and_cyclic_lists_keep_their_identity() -> None:
    shared: list[Any] = [1]
    cyclic: list[Any] = [shared, shared]
    cyclic.append(cyclic)
    value = load(pickle.dumps(cyclic))
    assert value[0] is value[1] and value[2] is value


@pytest.mark.parametrize("protocol", range(6))
def test_unknown_class_becomes_an_inert_stand_in(protocol: int) -> None:
    before = Point.count
    value = load(pickle.dumps({"p": Point(7)}, protocol))["p"]
    assert isinstance(value, Foreign) and value.made_by == Global(Point.__module__, "Point")
    assert value.state == {"x": 7}
    assert Point.count == before


def test_namespace_enum_path_and_class_are_inert() -> None:
    values = [argparse.Namespace(hidden=3), Colour.RED, PurePosixPath("a/b"), Point]
    namespace, colour, path, point = load(pickle.dumps(values))
    assert namespace.state == {"hidden": 3} and str(namespace.made_by) == "argparse.Namespace"
    assert isinstance(colour, Foreign) and isinstance(path, Foreign)
    assert point == Global(Point.__module__, "Point")


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("function", [os.system, eval, exec, __import__, os.popen, open, compile, setattr])
def test_functions_of_the_system_are_named_and_never_run(tmp_path: Path, protocol: int, function: Any) -> None:
    marker = tmp_path / "marker"
    data = pickle.dumps({"w": Shell(function, f"touch {marker}")}, protocol)
    with pytest.raises(UnreadableError, match="it was not run"):
        load(data)
    assert not marker.exists()


@pytest.mark.parametrize("text", [b"cos\nsystem\n(S'touch {}'\ntR.", b"(S'touch {}'\nios\nsystem\n.", b"(cos\nsystem\nS'touch {}'\no."])
def test_hand_written_attacks(tmp_path: Path, text: bytes) -> None:
    marker = tmp_path / "marker"
    data = text.replace(b"{}", os.fsencode(marker))
    with pytest.raises(UnreadableError, match=r"os\.system"):
        load(data)
    assert not marker.exists()


def test_functions_that_are_not_denied_are_not_called_either(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    value = load(pickle.dumps(Shell(Path.touch, marker)))
    assert isinstance(value, Foreign) and not marker.exists()
    value = load(b"cbuiltins\ngetattr\n(cbuiltins\nobject\nS'__subclasses__'\ntR(tR.")
    assert isinstance(value, Foreign)


def test_state_cannot_be_set_on_what_is_no_stand_in() -> None:
    before = set(vars(dict)), set(vars(pickles))
    load(b"ccollections\nOrderedDict\n)R}S'clear'\nI1\nsb.")
    load(b"ccollections\nOrderedDict\n(N}S'__call__'\nI1\nstb.")
    assert before == (set(vars(dict)), set(vars(pickles)))


HOSTILE = {
    "empty": b"",
    "no end": b"\x80\x02}",
    "empty stack": b".",
    "pop of nothing": b"0.",
    "tuple of nothing": b"\x85.",
    "mark of nothing": b"t.",
    "memo of nothing": b"h\x05.",
    "append to a number": b"K\x01K\x02a.",
    "entry of a list": b"]K\x01K\x02s.",
    "odd entries": b"}(K\x01u.",
    "call of a number": b"K\x01)R.",
    "call with no tuple": b"ccollections\nOrderedDict\nK\x01R.",
    "wrong arguments": b"cbuiltins\ncomplex\n(S'a'\nS'b'\ntR.",
    "long text promised": b"\x8d" + b"\xff" * 8 + b"a.",
    "long bytes promised": b"\x8e" + (1 << 40).to_bytes(8, "little") + b"a.",
    "long bytearray promised": b"\x96" + (1 << 40).to_bytes(8, "little") + b"a.",
    "long frame promised": b"\x80\x04\x95" + b"\xff" * 8,
    "long number promised": b"\x8b\xff\xff\xff\x7f.",
    "negative length": b"T\xff\xff\xff\xff.",
    "bad number": b"Ix\n.",
    "number of many digits": b"L" + b"9" * 100_000 + b"L\n.",
    "bad utf-8": b"X\x02\x00\x00\x00\xff\xfe.",
    "unknown instruction": b"\xff.",
    "extension": b"\x82\x01.",
    "out-of-band buffer": b"\x97.",
    "persistent id": b"K\x01Q.",
    "global by number": b"K\x01K\x02\x93.",
    "long name": b"c" + b"a" * 2000 + b"\nb\n.",
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.filterwarnings("error")
def test_damaged_pickles_are_our_error(name: str) -> None:
    with pytest.raises(UnreadableError, match="pickle"):
        load(HOSTILE[name])


def test_a_huge_memo_index_allocates_nothing() -> None:
    assert load(b"K\x05r\xff\xff\xff\x7f.") == 5


def test_deep_nesting_neither_recurses_nor_overflows() -> None:
    depth = 300_000
    load(b")" + b"\x85" * depth + b".")
    load(b"}" + b")" + b"\x85" * depth + b"K\x01s.")  # hashing such a tuple would overflow the C stack
    load(b"]" * depth + b"a" * (depth - 1) + b".")


def test_copies_of_one_long_list_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickles, "PICKLE_STEPS", 20_000)
    content = b"](" + b"K\x01" * 2000 + b"e\x85q\x00"  # (a list of 2000,), then dict(that) again and again
    with pytest.raises(UnreadableError, match="steps"):
        load(content + b"0cbuiltins\nset\nq\x010" + b"h\x01h\x00R0" * 100 + b"N.")


def test_instructions_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickles, "PICKLE_STEPS", 1000)
    with pytest.raises(UnreadableError, match="steps"):
        load(b"]" * 1001 + b".")


def test_the_end_is_told_so_that_the_next_pickle_can_follow() -> None:
    data = pickle.dumps([1]) + pickle.dumps("second")
    first, at = pickles.load(data, "f")
    second, end = pickles.load(np.frombuffer(data, np.uint8), "f", start=at)
    assert (first, second, end) == ([1], "second", len(data))


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("kind", ["<f4", ">f8", "<i8", "|b1", "<c8", "<f2", "|u1"])
def test_numpy_arrays_and_scalars_from_their_description(protocol: int, kind: str) -> None:
    array = np.arange(6).reshape(2, 3).astype(kind)
    read, by_column, scalar = load(pickle.dumps([array, np.asfortranarray(array), array[1, 2]], protocol))
    for value in (numpy_value(read), numpy_value(by_column)):
        assert value is not None and value.dtype == array.dtype.newbyteorder("=") and np.array_equal(value, array)
    value = numpy_value(scalar)
    assert value is not None and value.item() == array[1, 2].item()


def test_numpy_arrays_of_objects_and_wrong_sizes_are_no_arrays() -> None:
    value = load(pickle.dumps(np.array([Point(), None], object)))
    assert isinstance(value, Foreign) and numpy_value(value) is None
    value = load(pickle.dumps(np.arange(6.0), 2))
    value.state = (1, (1 << 40,), *value.state[2:])
    assert numpy_value(value) is None


MIXED = [PLAIN, OrderedDict(a=Point(3)), np.arange(5), Colour.RED]
SEEDS = [pickle.dumps(MIXED, protocol) for protocol in range(6)]


@settings(max_examples=400 if LONG else 200, deadline=None, derandomize=True, database=None)
@given(
    seed=st.sampled_from(SEEDS),
    edits=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=6),
    cut=st.integers(0, 10_000),
)
def test_changed_bytes_raise_our_errors_only(seed: bytes, edits: list[tuple[int, int]], cut: int) -> None:
    data = bytearray(seed)
    for place, value in edits:
        data[place % len(data)] = value
    with contextlib.suppress(RnnConvertError):
        load(bytes(data[: cut % (2 * len(data))] or data))


@settings(max_examples=400 if LONG else 200, deadline=None, derandomize=True, database=None)
@given(st.lists(st.sampled_from([opcode.code.encode("latin1") for opcode in pickletools.opcodes])))
def test_any_instructions_raise_our_errors_only(codes: list[bytes]) -> None:
    with contextlib.suppress(RnnConvertError):
        load(b"".join(code + bytes(2) for code in codes) + b".")


def test_a_model_of_words_that_keeps_the_function_hash_is_no_attack() -> None:
    """gensim's Word2Vec has it as an attribute; Python 2 called its module __builtin__."""
    assert load(pickle.dumps({"hashfxn": hash}, 2))["hashfxn"].name == "hash"
