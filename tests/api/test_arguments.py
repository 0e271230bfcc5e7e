"""The public functions, called with wrong types and values: every error says what is wrong, none comes from the inside."""

from __future__ import annotations

import ast
import inspect
import os
import re
import typing
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.core.arguments import checked, keywords_of, takes_only_keywords
from tests.helpers import drawn
from tests.helpers.requirements import need, needed
from tests.helpers.sources import checkpoint, stack

WRONG: list[Any] = [
    None, 0, -1, 1.5, True, float("nan"), "", "x", "\0", "a" * 300, "none", b"x", [], ["x"], [1], ["x", "y"], (), {}, {"a": 1}, {1: 2},
    {"target": 1}, int, len, object(), np.zeros(3), np.zeros((2, 2)), np.int32(3), np.zeros(3, int), Path("x"),
]  # fmt: skip
MORE = ("nonlinearity", "layout", "stack", "hidden_size", "merge_mode", "unknown_word")


def calls(folder: Path) -> dict[str, tuple[Callable[..., Any], list[Any], dict[str, Any]]]:
    """Calls that work, by name: the function, its arguments by place and those by name."""
    source = checkpoint(stack("gru", name="a"), stack("lstm", name="b"))
    layer = source.layers["a"]
    rc.save(source, folder / "m.onnx", force=True)
    rc.save(source, folder / "m.pt", force=True)
    path, out = str(folder / "m.onnx"), str(folder / "out.onnx")
    reading: dict[str, Any] = {"source_format": None, "settings": []}
    writing: dict[str, Any] = {"layers": [], "dtype": None, "strict": False, "force": True, "dry_run": True, "progress": None}
    filling: dict[str, Any] = {"mapping": None, "strict": True, "accept": [], "flatten": None, "trust_order": False, "dry_run": True}
    sizes: dict[str, Any] = {
        "name": "", "input_size": 3, "hidden_size": 4, "num_layers": 1, "bidirectional": False, "projection_size": 0,
        "bias_mode": "double", "input_mode": "linear",
    }  # fmt: skip
    pt = str(folder / "m.pt")
    return {
        "load": (rc.load, [path], {"format": "onnx", "settings": []}),
        "save": (rc.save, [source, out], {"format": "onnx", "settings": [], **writing}),
        "convert": (rc.convert, [path, out], {"target_format": None, **reading, **writing}),
        "targets": (rc.targets, [source], {}),
        "pack": (rc.pack, [layer, "keras"], {"dtype": None}),
        "unpack": (rc.unpack, [rc.pack(layer, "pytorch"), "pytorch"], {"cell": None, "name": ""}),
        "unpack a buffer": (rc.unpack, [rc.pack(layer, "cudnn"), "cudnn", "gru"], sizes),
        "join_stack": (rc.join_stack, [[layer]], {"name": "x"}),
        "split_stack": (rc.split_stack, [layer], {}),
        "split_directions": (rc.split_directions, [layer], {}),
        "propose_mapping": (rc.propose_mapping, [pt, pt], {"mapping": None, "target_format": None, **reading}),
        "transplant_file": (rc.transplant_file, [pt, pt, str(folder / "o.pt")], {**filling, "force": True, **reading}),
        "to_onnx": (rc.to_onnx, [layer], {"dtype": None}),
        "from_onnx": (rc.from_onnx, [rc.to_onnx(layer)], {}),
        "from_jax": (rc.from_jax, [{"cell": {"a": np.zeros(3)}}], {"framework": None, "cells": None}),
        "from_model": (rc.from_model, [rc.to_onnx(layer)], {}),
        "Cell": (rc.Cell, ["lstm"], {"coupled": ""}),
        "Activation": (rc.Activation, ["tanh"], {}),
    }


NAMES = (
    "load", "save", "convert", "targets", "pack", "unpack", "unpack a buffer", "join_stack", "split_stack", "split_directions",
    "propose_mapping", "transplant_file", "to_onnx", "from_onnx", "from_jax", "from_model", "Cell", "Activation",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_argument_is_an_error_that_says_so(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    function, args, named = calls(tmp_path)[name]
    assert set(calls(tmp_path)) == set(NAMES)
    cases: list[tuple[int | str, Any]] = [(place, value) for place in range(len(args)) for value in WRONG]
    cases += [(word, value) for word in (*named, *MORE) for value in WRONG]

    def check(case: tuple[int | str, Any]) -> None:
        where, value = case
        arguments, words = list(args), dict(named)
        if isinstance(where, int):
            arguments[where] = value
        else:
            words[where] = value
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                function(*arguments, **words)
        except (rc.RnnConvertError, ValueError):
            pass
        except TypeError as error:  # a word that the function does not have
            assert "argument" in str(error), error

    drawn.each(drawn.drawn(cases, 60, name), check, lambda case: f"{case[0]}={case[1]!r:.40}")


def test_a_model_in_memory_is_filled_or_an_error_says_why(tmp_path: Path) -> None:
    need("torch", "")
    import torch

    rc.save(checkpoint(stack("gru", name="a")), tmp_path / "m.pt")
    target = torch.nn.ModuleDict({"a": torch.nn.GRU(3, 4)})
    for words in ({"flatten": ["x"]}, {"accept": "x"}, {"mapping": 5}, {"settings": "a=b"}, {"strict": "no"}):
        with pytest.raises(rc.UsageError, match=next(iter(words))):
            rc.load_into(target, tmp_path / "m.pt", **words)
    with pytest.raises(rc.UsageError, match="expected a Recurrent"):
        rc.to_torch(5)  # type: ignore[arg-type]


def test_what_is_expected_is_said() -> None:
    for call, words in (
        (lambda: rc.convert("a", "b", layers=5), "layers is 5, expected a list of texts or a text"),  # type: ignore[arg-type]
        (lambda: rc.load(5), "takes a path, bytes, an open binary file"),  # type: ignore[arg-type]
        (lambda: rc.load("a", settings="a=b"), "settings is 'a=b', expected a list of texts"),
        (lambda: rc.convert("a", "a\0b"), "target cannot be the name of a file"),
        (lambda: rc.save([], "b"), "checkpoint is a list, expected a Checkpoint"),  # type: ignore[arg-type]
        (lambda: rc.convert("a", "b", strict="yes"), "strict is 'yes', expected True or False"),  # type: ignore[arg-type]
        (lambda: rc.split_stack(None), "stack is None, expected a Recurrent"),  # type: ignore[arg-type]
    ):
        with pytest.raises(rc.UsageError, match=words):
            call()


def test_a_word_that_nearly_fits_is_shown() -> None:
    layer = stack("lstm")
    vector = rc.pack(layer, "cudnn")
    sizes: dict[str, Any] = {"input_size": layer.input_size, "hidden_size": layer.hidden_size}
    for call, words in (
        (lambda: rc.pack(layer, "pytroch"), "Unknown format 'pytroch'. Did you mean 'pytorch'?"),
        (lambda: rc.unpack({"W": vector}, "ONNX"), "Unknown format 'ONNX'. Did you mean 'onnx'?"),
        (lambda: rc.pack(layer, "torch"), "Unknown format 'torch'. Choose 'pytorch'"),
        (lambda: rc.pack(layer, "candle"), "Unknown format 'candle'. Choose 'pytorch'"),
        (lambda: rc.pack(layer, "TensorFlow"), "Unknown format 'TensorFlow'. Choose 'keras' or 'tensorflow1'"),
        (lambda: rc.pack(layer, "tensorrt"), "Unknown format 'tensorrt'. Choose 'onnx'"),
        (lambda: rc.pack(layer, "cudnn", dtpe="float16"), "Unknown option 'dtpe'. Did you mean 'dtype'?"),
        (lambda: rc.unpack(vector, "cudnn", "LSTM", **sizes), "Unknown cuDNN cell 'LSTM'. Did you mean 'lstm'?"),
        (lambda: rc.unpack(vector, "cudnn", "lstm", input_sise=3), "Unknown option 'input_sise'. Did you mean 'input_size'?"),
        (lambda: rc.unpack(vector, "cudnn", "lstm", input_size=3), "hidden_size is missing: expected an integer"),
        (lambda: rc.unpack({"a": vector}, "pytorch", "LSTM"), "option cell cannot be 'LSTM'. Did you mean 'lstm'?"),
        (lambda: rc.Cell("LSTM"), "Unknown cell 'LSTM'. Did you mean 'lstm'?"),  # type: ignore[arg-type]
        (lambda: rc.verify("a.pt", on=["onnxruntime"]), "Unknown executor 'onnxruntime'. Did you mean 'onnxruntime-cpu'?"),
        (lambda: rc.verify("a.pt", seeds=1), "Unknown keyword 'seeds'. Did you mean 'seed'?"),  # type: ignore[call-arg]
    ):
        with pytest.raises(rc.UsageError, match=re.escape(words)):
            call()


@pytest.mark.parametrize("wrong", [3, None, "model.keras", [1]])
def test_what_is_no_layer_of_keras_is_said(wrong: object) -> None:
    needed("keras", "keras")
    with pytest.raises(rc.UsageError, match="is not a layer of Keras"):
        rc.from_keras(wrong)


def test_a_layer_without_a_name_has_no_empty_quotes() -> None:
    layer = stack("lstm", name="", num_layers=2, num_directions=2)
    assert repr(layer).startswith("<Recurrent: LSTM")
    with pytest.raises(ValueError, match=r"\(the module itself\): its directions meet at every layer"):
        rc.split_directions(layer)


def test_every_public_function_checks_its_arguments() -> None:
    unchecked = []
    for name in rc.__all__:
        function = getattr(rc, name)
        if not inspect.isfunction(function):
            continue
        assert inspect.unwrap(function) is not function and function.__doc__
        module = vars(__import__(inspect.unwrap(function).__module__, fromlist=["x"]))
        for parameter in inspect.signature(function).parameters.values():
            if parameter.kind is parameter.VAR_KEYWORD or parameter.annotation == "Any":
                continue
            try:
                typing.get_type_hints(type("Held", (), {"__annotations__": {"x": parameter.annotation}}), module)
            except (NameError, TypeError):
                unchecked.append(f"{name}: {parameter.name}")
    # Arrays of any sort, and what is imported only where it is met.
    assert unchecked == ["convert: verify", "from_onnx: model", "unpack: arrays"]


def test_unions_iterables_and_paths_are_told_apart() -> None:
    @checked
    def call(path: str | os.PathLike[str], words: typing.Sequence[str] = (), count: int = 0, ratio: float | None = None) -> str:
        return f"{path} {list(words)} {count} {ratio}"

    assert call(Path("a"), cast("Any", (w for w in "xy")), 3, 2) == "a ['x', 'y'] 3 2"
    assert call("a", cast("Any", {"x": 1}), ratio=None) == "a ['x'] 0 None"
    for wrong in ({"words": "xy"}, {"words": [1]}, {"count": True}, {"count": 1.5}, {"ratio": "1"}):
        with pytest.raises(rc.UsageError, match=f"call: {next(iter(wrong))} is"):
            call("a", **wrong)
    with pytest.raises(TypeError, match="missing a required argument"):
        call()  # type: ignore[call-arg]


def _misspelt() -> list[tuple[str, str]]:
    functions = {name: getattr(rc, name) for name in rc.__all__}
    return [
        (name, word)
        for name, function in functions.items()
        if inspect.isfunction(function)
        for word, (parameter, where) in keywords_of(function).items()
        if (parameter.kind is inspect.Parameter.KEYWORD_ONLY or where is not inspect.unwrap(function)) and len(word) > 4
    ]


def test_public_functions_have_at_most_nine_parameters_and_type_checkers_know_each_keyword_that_they_pass_on() -> None:
    """What `passes_on` lets through when it runs is what the TypedDict of the **keywords says, with the same types."""
    checked_functions = []
    for name in rc.__all__:
        function = getattr(rc, name)
        if not inspect.isfunction(function):
            continue
        parameters = inspect.signature(function).parameters
        assert len(parameters) <= 9, name
        accepted = {word: parameter.annotation for word, (parameter, _) in keywords_of(function).items() if word not in parameters}
        if not accepted:
            continue
        (options,) = (parameter for parameter in parameters.values() if parameter.kind is parameter.VAR_KEYWORD)
        module = Path(inspect.getsourcefile(inspect.unwrap(function)) or "")
        keys = _keys_of_typed_dict(module, re.sub(r"Unpack\[(\w+)\]", r"\1", options.annotation))
        assert accepted == {word: keys.get(word) for word in accepted}, name
        if takes_only_keywords(function):
            assert accepted.keys() == keys.keys(), name
        checked_functions.append(name)
    assert {"convert", "save", "verify", "run", "diff", "diagnose", "load_into", "transplant_file", "scaffold", "export_model"} == {
        *checked_functions
    }


def _keys_of_typed_dict(module: Path, name: str) -> dict[str, str]:
    """The keys of a TypedDict and of those above it, from the text of the modules: some are there for type checkers alone."""
    tree = ast.parse(module.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name == name:
            fields = [item for item in node.body if isinstance(item, ast.AnnAssign)]
            keys = {ast.unparse(item.target): ast.unparse(item.annotation) for item in fields}
            above = [_keys_of_typed_dict(module, base.id) for base in node.bases if isinstance(base, ast.Name) and base.id != "TypedDict"]
            return {key: kind for typed in (*above, keys) for key, kind in typed.items()}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and any(alias.name == name for alias in node.names):
            return _keys_of_typed_dict(Path(rc.__file__).parent.parent / f"{(node.module or '').replace('.', '/')}.py", name)
    raise AssertionError(f"{module} has no {name}")


def test_keywords_change_a_plan_that_is_given_beside_them(tmp_path: Path) -> None:
    rc.save(checkpoint(stack("gru", name="a")), tmp_path / "m.onnx")
    plan = rc.Plan(on="reference", cases="zero", batch=3)
    results = rc.run(tmp_path / "m.onnx", plan, time=5)
    assert results.layers["a"].truth["zero"].y.shape[:2] == (5, 3)


def test_a_sample_leaves_no_room_for_drawn_inputs(tmp_path: Path) -> None:
    rc.save(checkpoint(stack("gru", name="a")), tmp_path / "m.onnx")
    call: Any = rc.diagnose
    for choice in ({"seed": 3}, {"pairs": ["a=b"]}):
        with pytest.raises(rc.UsageError, match=f"{next(iter(choice))} is about a second file"):
            call(tmp_path / "m.onnx", io={"input": np.zeros((2, 3))}, **choice)


def test_a_misspelt_keyword_of_any_public_function_is_guessed(tmp_path: Path) -> None:
    """One mechanism for all: with its second letter left out, each keyword is recognised, before anything else is wrong."""
    source = checkpoint(stack("gru", name="a"))
    rc.save(source, tmp_path / "m.onnx")
    functions = {name: getattr(rc, name) for name in dict(_misspelt())}
    assert {"convert", "load_into", "load_optimizer_into", "identify", "verify", "fuse"} <= functions.keys()
    for name, word in _misspelt():
        signature = inspect.signature(functions[name])
        needed_ones = [p for p in signature.parameters.values() if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
        special: dict[str, list[Any]] = {"save": [source, tmp_path / "o.onnx"], "load_into": [None, tmp_path / "m.onnx"]}
        values = special.get(name, [tmp_path / "m.onnx", tmp_path / "m.onnx", tmp_path / "o.onnx"])[: len(needed_ones)]
        if name == "convert":
            values[1] = tmp_path / "o.onnx"
        with pytest.raises(rc.UsageError, match=rf"Unknown \w+ '{word[0] + word[2:]}'. Did you mean '{word}'\?"):
            functions[name](*values, **{word[0] + word[2:]: "x"})


def test_a_name_that_does_not_exist_is_an_error_that_lists_those_that_do() -> None:
    source = checkpoint(stack("gru", name="encoder"), stack("lstm", name="decoder"))
    for call, words in (
        (lambda: source.layers["encodr"], "there is no layer 'encodr'. Did you mean 'encoder'?"),
        (lambda: source.layers["x"], "there is no layer 'x'. Choose one of: encoder, decoder"),
        (lambda: source.layers["encoder"].gates["i"], "there is no gate 'i'. Choose one of: r, z, n"),
        (lambda: source.tensors["x"], "there is no tensor 'x', and no other tensor"),
    ):
        with pytest.raises(KeyError) as caught:
            call()
        assert str(caught.value) == words and isinstance(caught.value, rc.UsageError)
    assert source.layers.get("x") is None and "x" not in source.layers


def test_a_module_that_is_a_layer_is_not_called_by_an_empty_name(tmp_path: Path) -> None:
    source = checkpoint(stack("gru", name=""))
    assert source.layers["(the module itself)"] is source.layers[""] is source.layers.get("(the module itself)")
    assert "(the module itself)" in source.layers and source.layers.get("x") is None and "x" not in source.layers
    assert "(the module itself)" in repr(source.layers) and "''" not in repr(source.layers)
    with pytest.raises(KeyError, match=r"Choose one of: \(the module itself\)"):
        source.layers["x"]
    rc.save(source, tmp_path / "m.pt")
    assert rc.convert(tmp_path / "m.pt", tmp_path / "m.onnx", layers="(the module itself)").exact
    need("torch", "")
    import torch

    report = rc.load_into(torch.nn.GRU(3, 4), tmp_path / "m.pt")
    assert "(the module itself) from (the module itself): recurrent" in str(report)
    with pytest.raises(rc.TransplantError, match=r"nothing in the source fits \(the module itself\)") as caught:
        rc.load_into(torch.nn.GRU(3, 5), tmp_path / "m.pt")
    assert "''" not in str(caught.value)
