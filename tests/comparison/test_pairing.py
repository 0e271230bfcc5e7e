"""Which layers of two files are the same, and that nothing is guessed without a word."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rnnconvert as rc
from rnnconvert.comparison.pairing import LayerPair, pair
from rnnconvert.core import reference
from rnnconvert.core.cells import Clip
from rnnconvert.core.errors import UsageError
from rnnconvert.core.weights import Call, Directly, Layer, Recurrent
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.language.layout import Sizes
from tests.helpers.stacks import BOTH, random_stack


def lstm(name: str, into: int = 3, units: int = 4, layers: int = 1, directions: int = 1, seed: int = 0) -> Recurrent:
    form = Sizes("lstm", into, units, num_layers=layers, num_directions=directions, parts=BOTH)
    return random_stack(form, seed, np.float32).replace(name=name)


def of(*stacks: Recurrent, path: str = "a.pt") -> Checkpoint:
    return Checkpoint(path, "canonical", {stack.name: stack for stack in stacks})


def names(pairs: list[LayerPair]) -> list[tuple[str, tuple[str, ...]]]:
    return [(paired.name, paired.names) for paired in pairs]


def same(layer: Recurrent, other: Recurrent) -> None:
    x = np.random.default_rng(0).uniform(-1, 1, (5, 2, layer.input_size))
    first, second = reference.run(layer, x), reference.run(other, x)
    np.testing.assert_allclose(second.y, first.y, atol=1e-6)
    assert [h.shape for h in first.hidden] == [h.shape for h in second.hidden]


SUFFIXES = ("out.pt", "out.keras", "out.weights.h5", "out.h5", "out.onnx", "out.bin", "out.safetensors")


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("name", ["", "model.encoder/rnn"])
@pytest.mark.parametrize(("layers", "directions"), [(1, 1), (2, 1), (2, 2), (3, 2)])
def test_what_we_write_is_paired_with_what_it_was_written_from(
    suffix: str, name: str, layers: int, directions: int, tmp_path: Path
) -> None:
    stacks = [lstm(name, layers=layers, directions=directions), lstm("other", 5, 6)]
    source = of(*stacks[: 1 if suffix == "out.bin" else 2])  # a raw buffer is one layer
    rc.save(source, tmp_path / suffix)
    written = rc.load(tmp_path / suffix)
    for a, b in ((source, written), (written, source)):
        pairs = pair(a, b)
        assert len(pairs) == len(source.layers)
        for paired in pairs:
            same(paired.stack, paired.counterpart)


@pytest.mark.parametrize("option", ["stack", "directions"])
@pytest.mark.parametrize("suffix", ["out.pt", "out.keras", "out.onnx", "out.safetensors"])
def test_pieces_of_a_layer_are_taken_together(option: str, suffix: str, tmp_path: Path) -> None:
    source = of(lstm("enc", layers=2 if option == "stack" else 1, directions=2))
    flipped: dict[str, Any] = {"reverse": "flipped"} if option == "directions" and suffix in ("out.pt", "out.safetensors") else {}
    rc.save(source, tmp_path / suffix, **{option: "split", **flipped})
    written = rc.load(tmp_path / suffix)
    assert len(written.layers) == 2
    (paired,) = pair(source, written)
    assert paired.names == tuple(written.layers) and "taken as one" in paired.evidence
    assert paired.counterpart.num_directions == 2
    (other,) = pair(written, source)
    assert other.name == "+".join(written.layers) and other.names == ("enc",)
    if option == "stack":
        same(paired.stack, paired.counterpart)
        same(other.stack, other.counterpart)


@pytest.mark.parametrize("layers", [2, 3])
def test_a_stack_is_found_in_layers_of_which_the_first_has_its_name(layers: int, tmp_path: Path) -> None:
    source = of(lstm("lstm", layers=layers))
    rc.save(source, tmp_path / "out.json")  # RTNeural names its layers by their type
    written = rc.load(tmp_path / "out.json")
    assert list(written.layers) == ["lstm", "lstm_2", "lstm_3"][:layers]
    split = [stack.replace(name=f"lstm_{i}" if i else "lstm") for i, stack in enumerate(rc.split_stack(source.layers["lstm"]))]
    rc.save(of(*split), tmp_path / "out.keras")
    reads = [stack.replace(calls=(Call(Directly((below.name,))),)) for below, stack in itertools.pairwise(split)]
    for connected in (written, of(split[0], *reads)):
        for a, b in ((source, connected), (connected, source)):
            (matched,) = pair(a, b)
            same(matched.stack, matched.counterpart)
    with pytest.raises(rc.UsageError, match="cannot tell what corresponds"):
        pair(of(*split), source)  # nothing states that they read one another


def test_layers_and_directions_split_at_once(tmp_path: Path) -> None:
    source = of(lstm("enc", layers=2, directions=2))
    rc.save(source, tmp_path / "out.onnx", stack="split", directions="split")
    written = rc.load(tmp_path / "out.onnx")
    assert len(written.layers) == 4
    (paired,) = pair(source, written)
    same(paired.stack, paired.counterpart)


def test_layers_that_were_joined_are_found_in_the_stack(tmp_path: Path) -> None:
    source = of(lstm("first"), lstm("second", 4))
    rc.save(source, tmp_path / "out.pt", stack="join")
    (paired,) = pair(source, rc.load(tmp_path / "out.pt"))
    assert paired.name == "first+second" and "order" in paired.evidence
    same(paired.stack, paired.counterpart)


def test_the_order_of_one_side_does_not_matter_where_names_or_sizes_decide() -> None:
    a, b = of(lstm("x", units=4), lstm("y", units=5)), of(lstm("y", units=5), lstm("x", units=4))
    assert names(pair(a, b)) == [("x", ("x",)), ("y", ("y",))]
    b = of(lstm("p", units=5), lstm("q", units=4))
    pairs = pair(a, b)
    assert names(pairs) == [("x", ("q",)), ("y", ("p",))]
    assert "only layer of its kind and sizes" in pairs[0].evidence


def test_equals_without_names_are_paired_in_order_and_it_is_said() -> None:
    pairs = pair(of(lstm("x"), lstm("y")), of(lstm("p"), lstm("q")))
    assert names(pairs) == [("x", ("p",)), ("y", ("q",))]
    assert all("order" in paired.evidence for paired in pairs)


def test_scopes_and_spellings_are_seen_through() -> None:
    a = of(lstm("model.encoder.lstm"), lstm("model.decoder.lstm"))
    b = of(lstm("net/decoder/lstm:0"), lstm("net/encoder/lstm:0"))
    with pytest.raises(UsageError):
        pair(a, of(lstm("p"), lstm("q"), lstm("r")))
    b = of(lstm("decoder/lstm:0"), lstm("encoder/lstm:0"))
    pairs = pair(a, b)
    assert names(pairs) == [("model.encoder.lstm", ("encoder/lstm:0",)), ("model.decoder.lstm", ("decoder/lstm:0",))]
    assert "same ending" in pairs[0].evidence


def test_an_ending_that_several_have_decides_nothing() -> None:
    a = of(lstm("encoder.lstm"), lstm("decoder.lstm"))
    pairs = pair(a, of(lstm("lstm"), lstm("lstm_1")))
    assert all("order" in paired.evidence for paired in pairs)
    with pytest.raises(UsageError, match=r"--pair encoder.lstm=lstm"):
        pair(a, of(lstm("lstm")))


def test_what_is_left_over_is_named_with_the_option_that_decides() -> None:
    a, b = of(lstm("x"), lstm("y")), of(lstm("p"), lstm("q"), lstm("r"), path="b.onnx")
    with pytest.raises(UsageError) as caught:
        pair(a, b)
    message = str(caught.value)
    assert "--pair x=p" in message and "a.pt" in message and "b.onnx" in message and "--layer" in message
    assert all(f"  {name}: LSTM" in message for name in "xypqr")
    with pytest.raises(UsageError, match="'r' of B"):
        pair(a, b, ["x=p", "y=q"])
    assert names(pair(a, b, ["x=p", "y=q"], selected=True)) == [("x", ("p",)), ("y", ("q",))]


def test_chosen_pairs_come_first() -> None:
    pairs = pair(of(lstm("x"), lstm("y")), of(lstm("x"), lstm("y")), ["x=y", "y=x"])
    assert names(pairs) == [("x", ("y",)), ("y", ("x",))] and pairs[0].evidence == "chosen"
    stack, pieces = of(lstm("s", layers=2)), of(lstm("one"), lstm("two", 4))
    assert names(pair(stack, pieces, ["s=one+two"])) == [("s", ("one", "two"))]
    assert names(pair(pieces, stack, ["one+two=s"])) == [("one+two", ("s",))]
    both = lstm("s", directions=2)
    ways = of(*(both.replace(name=name, layers=(Layer((both[0, way],)),)) for way, name in enumerate("fb")))
    assert names(pair(of(both), ways, ["s=f+b"])) == [("s", ("f", "b"))]
    square = lstm("s", 4, directions=2)
    ways = of(*(square.replace(name=f"x_{way}", layers=(Layer((square[0, n],)),)) for n, way in enumerate(("forward", "backward"))))
    assert pair(of(square), ways, ["s=x_forward+x_backward"])[0].counterpart.num_directions == 2
    assert names(pair(of(lstm("a=b+c")), of(lstm("d=e")), ["a=b+c=d=e"])) == [("a=b+c", ("d=e",))]
    assert names(pair(of(lstm("")), of(lstm("q")), ["=q"])) == [("", ("q",))]


@pytest.mark.parametrize(
    ("text", "message"), [("x", "expected A=B"), ("x=z", "no such layers"), ("x=p+p", "no such layers"), ("x=p+q", "cannot be one")]
)
def test_a_chosen_pair_that_cannot_be(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        pair(of(lstm("x")), of(lstm("p"), lstm("q", 7)), [text])


def test_the_only_layers_are_paired_even_if_they_differ() -> None:
    (paired,) = pair(of(lstm("x")), of(lstm("p", 5, 6)))
    assert paired.evidence == "the only recurrent layer of each file"


def test_two_layers_of_the_same_name_but_other_sizes_are_a_pair() -> None:
    (paired,) = pair(of(lstm("x")), of(lstm("x", 5, 6)))
    assert paired.evidence == "equal names"


def test_a_file_without_layers_is_said() -> None:
    with pytest.raises(UsageError, match="no recurrent layers"):
        pair(of(lstm("x")), Checkpoint("b.pt", "pytorch", {}))


def test_directions_that_are_two_onnx_nodes(tmp_path: Path) -> None:
    layer, unlike = lstm("enc", directions=2), lstm("enc", directions=2, seed=1)
    backward = unlike[0, 1]
    cell = backward.cell.replace(clips=(Clip("gates", -0.5, 0.5),))
    source = of(layer.replace(layers=(Layer((layer[0, 0], backward.replace(cell=cell))),)))
    rc.save(source, tmp_path / "out.onnx")
    written = rc.load(tmp_path / "out.onnx")
    assert len(written.layers) == 2
    (paired,) = pair(source, written)
    same(paired.stack, paired.counterpart)


def test_directions_that_are_stored_apart_are_joined_as_on_the_other_side() -> None:
    both = lstm("enc", directions=2)
    summed = both.replace(layers=(Layer(both.layers[0].directions, "sum"),))
    ways = [both.replace(name=f"enc_{name}", layers=(Layer((both[0, way],)),)) for way, name in enumerate(("forward", "backward"))]
    for first, second in ((of(summed), of(*ways)), (of(*ways), of(summed))):
        (paired,) = pair(first, second)
        assert paired.stack.layers[0].merge == paired.counterpart.layers[0].merge == "sum"
