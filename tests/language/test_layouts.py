"""What every layout must do, whatever the framework. A new layout is tested by existing.

Few layouts lie in a way that no other does: those are tried in every form, and the others in their widest one and in one that is
drawn. None of this proves a gate order: a wrong one passes every test here. Literal and native tests do.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, Literal

import numpy as np
import pytest

import rnnconvert.core.arrays
import rnnconvert.language.packing
from rnnconvert.core.arrays import BFLOAT16, Array
from rnnconvert.core.weights import BIAS_PARTS, Recurrent, gates_of
from rnnconvert.language import outline, registry
from rnnconvert.language.fitting import fit, misfit
from rnnconvert.language.layout import UNUSED, Holds, Layout, Sizes, Tensor
from rnnconvert.language.packing import Packed, assemble, pack, unpack
from rnnconvert.language.places import offsets, shapes, slots
from tests.helpers import drawn
from tests.helpers.drawn import each
from tests.helpers.stacks import BOTH, PLAIN, cell_of, random_stack

# Layouts of no framework that we write, for what the built-in ones leave unused.
PAPER = Layout(
    "paper.gru", "gru", "r -z n",
    (
        Tensor("W_{gate}", "input", "hidden in"),
        Tensor("U_{gate}", "recurrent", "in hidden"),
        Tensor("b_{gate}", "input_bias", "hidden"),
        Tensor("c_{gate}", "recurrent_bias", "hidden"),
    ),
    "arXiv:1412.3555", reset_after=True,
)  # fmt: skip
NEGATED = Layout(
    "negated.gru", "gru", "-z r -n",
    (
        Tensor("kernel", "input", "(in gate hidden)"),
        Tensor("recurrent", "recurrent", "(hidden gate) in"),
        Tensor("bias", "input_bias recurrent_bias", "(hidden gate part)"),
    ),
    "every word beside another one than usual", reset_after=True,
)  # fmt: skip
LEARNED = Layout(
    "learned.lstm", "lstm", "i f g o", outline.TORCH, "a projection beside learned states, as rnnconvert's own modules have them",
    holds=Holds(biases=("none", "input", "recurrent", "both")),
)  # fmt: skip
LAYOUTS = [*registry.layouts().values(), PAPER, NEGATED, LEARNED]


def biases_of(mode: str) -> frozenset[str]:
    """The parts of a bias mode."""
    return {"both": frozenset(BIAS_PARTS), "none": frozenset()}.get(mode, frozenset({f"{mode}_bias"}))


def forms(layout: Layout) -> Iterator[Sizes]:
    """Forms that try everything a layout has a place for."""
    held = layout.part_names
    modes = {biases_of(mode) & held for mode in layout.holds.biases}
    most = max(modes, key=len)
    for width, hidden in [(3, 5), (5, 5), (4, 1), (1, 3), (1, 1)]:
        yield Sizes(layout.kind, width, hidden, parts=PLAIN | most)
    for layers, directions in [(2, 1), (1, 2), (3, 2)]:
        for width, hidden in [(3, 4), (8, 4), (2, 1)]:
            yield Sizes(layout.kind, width, hidden, layers, directions, parts=PLAIN | most)
    for mode in sorted(modes, key=sorted):
        yield Sizes(layout.kind, 4, 3, 2, 2, parts=PLAIN | mode)
        yield Sizes(layout.kind, 4, 3, parts=PLAIN | mode)
    extras = [
        {"peephole"}, {"initial_hidden"}, {"initial_hidden", "initial_cell"},
        {"peephole", "initial_hidden", "initial_cell"},
    ]  # fmt: skip
    for extra, directions in itertools.product(extras, (1, 2)):
        yield Sizes(layout.kind, 3, 5, 1, directions, parts=PLAIN | most | extra)
    for layers, directions, projection in [(1, 1, 2), (2, 2, 2), (2, 1, 1), (1, 1, 5)]:
        yield Sizes(layout.kind, 3, 5, layers, directions, projection, PLAIN | most | {"projection"})
    yield Sizes(layout.kind, 3, 5, projection_size=2, parts=PLAIN | most | {"projection", "initial_hidden", "initial_cell"})
    if layout.holds.skip_input:
        yield Sizes(layout.kind, 5, 5, parts=(PLAIN | most) - {"input"}, skip_input=True)
        yield Sizes(layout.kind, 5, 5, 2, 2, parts=PLAIN | most, skip_input=True)


def fits_in(layout: Layout, form: Sizes) -> bool:
    """Return whether a layout has a place for all of a form."""
    if not form.parts <= layout.part_names:
        return False
    try:
        shapes(layout, form)
    except (ValueError, StopIteration):
        return False
    return True


def name(case: object) -> str:
    """A short test id."""
    if isinstance(case, Layout):
        return case.name
    assert isinstance(case, Sizes)
    words = [f"{case.input_size}-{case.hidden_size}", f"{case.num_layers}x{case.num_directions}"]
    words += [f"p{case.projection_size}"] if case.projection_size else []
    words += ["skip"] if case.skip_input else []
    return "-".join([*words, *sorted(part.replace("_", "") for part in case.parts - PLAIN)])


CASES = {layout.name: [form for form in dict.fromkeys(forms(layout)) if fits_in(layout, form)] for layout in LAYOUTS}
"""The forms of each layout."""

over_layouts = pytest.mark.parametrize("layout", LAYOUTS, ids=name)


def ways(layout: Layout) -> set[Hashable]:
    """How its arrays lie: two layouts that agree in this differ in names and in the order of gates."""
    words = ("layer", "direction", "pseudo_layer", "gate")
    features: set[Hashable] = {
        (tensor.axes, str(tensor.sections), tensor.reinterpreted, tensor.layers, *(f"{{{word}}}" in tensor.name for word in words))
        for tensor in layout.tensors
    }
    features.add(("signs", layout.kind, tuple(sign for _, sign in layout.order), layout.coupled))
    features.add(("biases", layout.kind, layout.reset_after, layout.holds.biases, layout.keys))
    features.add(("names", bool(layout.letters), layout.alone is None, layout.holds.skip_input))
    return features


def cover(layouts: Sequence[Layout]) -> list[str]:
    """Some layouts that between them lie in every way that there is."""
    left = set().union(*map(ways, layouts))
    chosen = []
    while left:
        best = max(layouts, key=lambda layout: len(ways(layout) & left))
        chosen.append(best.name)
        left -= ways(best)
    return chosen


COVER = cover(LAYOUTS)


def forms_of(layout: Layout) -> list[Sizes]:
    """The forms that a layout is tried in: each one that lies as no other does in all of them."""
    every = CASES[layout.name]
    if layout.name in COVER:
        return every
    widest = max(every, key=lambda form: (len(form.parts), form.num_layers * form.num_directions, -form.input_size))
    return drawn.drawn(every, 1, layout.name, lambda form: form is widest)


def random_arrays(layout: Layout, form: Sizes, dtype: str = "float32") -> dict[str, Array]:
    """A framework's arrays full of finite random bits."""
    rng = np.random.default_rng(len(layout.name))
    return {key: rng.standard_normal(shape).astype(dtype) for key, shape in shapes(layout, form).items()}


def bits(array: Array) -> Array:
    """The numbers of an array as what they are made of, in C order."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def stack_of(layout: Layout, form: Sizes, arrays: dict[str, Array]) -> Recurrent:
    return assemble(layout.name, cell_of(layout), unpack(layout, form, arrays), form.num_directions)


def fortran(array: Array) -> Array:
    return np.asfortranarray(array)


def sliced(array: Array) -> Array:
    """The same numbers as a slice of a larger array, run backwards along the first axis."""
    large = np.zeros([2 * length + 1 for length in array.shape], array.dtype)
    view = large[tuple(slice(1, None, 2) for _ in array.shape)][::-1]
    view[...] = array
    return view


def byte_offset(array: Array) -> Array:
    """The same numbers at an odd address."""
    buffer = bytearray(array.nbytes + 1)
    view = np.ndarray(array.shape, array.dtype, buffer, offset=1)
    view[...] = array
    return view


def read_only(array: Array) -> Array:
    view = array.copy()
    view.flags.writeable = False
    return view


STORAGE: list[Callable[[Array], Array]] = [np.ascontiguousarray, fortran, sliced, byte_offset, read_only]


def test_every_layout_has_cases() -> None:
    assert all(CASES[layout.name] for layout in LAYOUTS)
    assert set().union(*(ways(layout) for layout in LAYOUTS if layout.name in COVER)) == set().union(*map(ways, LAYOUTS))


def every_element_is_one_gates_once(layout: Layout, form: Sizes) -> None:
    arrays = {key: np.zeros(shape, int) for key, shape in shapes(layout, form).items()}
    owners: dict[str, set[str]] = {}
    for slot in slots(layout, form):
        slot.place.view(arrays[slot.array])[...] += 1
        owners.setdefault(slot.array, set()).add(slot.key[1])
    letters = layout.letters.split()
    for key, array in arrays.items():
        # Gates that a layout spells alike are one array.
        shared = len(owners[key]) if len(set(letters)) < len(letters) else 1
        assert (array == shared).all(), key


def every_gate_of_every_part_has_a_place(layout: Layout, form: Sizes) -> None:
    expected = {
        (layer, direction, (part, gate))
        for layer in range(form.num_layers)
        for direction in range(form.num_directions)
        for part in form.parts
        for gate in gates_of(form.kind, part)
        if form.shape(layer, part) is not None and (part not in BIAS_PARTS or (part, gate) in layout.keys)
        if not gate or gate != layout.coupled
    }
    places = [(slot.layer, slot.direction, slot.key) for slot in slots(layout, form) if slot.key[1] != UNUSED]
    assert expected == set(places)
    assert len(expected) == len(places)


def an_offset_is_where_the_view_starts(layout: Layout, form: Sizes) -> None:
    arrays = {
        key: np.arange(math.prod(shape)).reshape(shape) for key, shape in shapes(layout, form).items()
    }  # fmt: skip
    read = [slot for slot in slots(layout, form) if slot.key[1] != UNUSED]
    for slot, row in zip(read, offsets(layout, form), strict=True):
        view = slot.place.view(arrays[row.array])
        ranges = [np.arange(length) * step for length, step in zip(row.shape, row.strides, strict=True)]
        expected = row.offset + sum(np.meshgrid(*ranges, indexing="ij"))
        np.testing.assert_array_equal(expected, view)


def arrays_come_back_bit_for_bit(layout: Layout, form: Sizes) -> None:
    for storage in drawn.drawn(STORAGE, 1, f"{layout.name} {form}", lambda storage: storage is sliced):
        come_back(layout, form, storage)


def come_back(layout: Layout, form: Sizes, storage: Callable[[Array], Array]) -> None:
    random = random_arrays(layout, form)
    for slot in slots(layout, form):
        if slot.key[1] == UNUSED:
            slot.place.view(random[slot.array])[...] = 0  # what was there is not kept
    arrays = {key: storage(array) for key, array in random.items()}
    before = {key: array.copy() for key, array in arrays.items()}
    packed = pack(layout, stack_of(layout, form, arrays))
    if stack_of(layout, form, arrays).first.biases not in layout.holds.biases:
        # A layout without this bias mode is written with two biases: the other one is zero.
        full = Sizes(**{**vars(form), "parts": form.parts | set(BIAS_PARTS)})
        expected = {key: np.zeros(shape, np.float32) for key, shape in shapes(layout, full).items()}
        values = unpack(layout, form, arrays)
        for slot in slots(layout, full):
            if slot.key in values[slot.layer, slot.direction]:
                slot.place.view(expected[slot.array])[...] = values[slot.layer, slot.direction][slot.key]
    else:
        expected = before
    assert list(expected) == list(packed)
    for key, array in expected.items():
        np.testing.assert_array_equal(bits(array), bits(np.asarray(packed[key])), key)
        np.testing.assert_array_equal(bits(before[key]), bits(arrays[key]), f"{key} was written to") if key in before else None


def pieces_joined_are_the_array(layout: Layout, form: Sizes) -> None:
    stack = stack_of(layout, form, random_arrays(layout, form))
    dtypes: dict[int, list[Any]] = {}
    for dtype, room in drawn.drawn(
        itertools.product(("float32", "float16", BFLOAT16, "float64"), (1, 64, 400)), 4, f"{layout.name} {form}"
    ):
        dtypes.setdefault(room, []).append(dtype)
    for room, some in dtypes.items():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(rnnconvert.language.packing, "PIECE_BYTES", room)
            patch.setattr(rnnconvert.core.arrays, "PIECE_BYTES", room)
            for dtype in some:
                for key, packed in pack(layout, stack, np.dtype(dtype)).items():
                    joined(packed, f"{key} as {dtype}, {room} bytes at a time")


def joined(packed: Packed, key: str) -> None:
    """The pieces of an array are the array."""
    pieces, before = [], None
    for piece in packed.pieces():
        # A piece is written while the next one is made: only the next but one may overwrite it.
        assert before is None or bits(before).tobytes() == pieces[-1], key
        assert piece.ndim == 1 and piece.dtype == packed.dtype, key
        pieces.append(bits(piece).tobytes())
        before = piece
    assert bits(np.asarray(packed)).tobytes() == b"".join(pieces), key


@pytest.mark.parametrize("shape", [(300, 200), (257, 65), (1, 20000), (20000, 1)], ids=str)
def test_tiles_joined_are_the_matrix(shape: tuple[int, int]) -> None:
    wanted = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    orders: tuple[Literal["C", "F"], ...] = ("C", "F")
    for target_order, source_order in itertools.product(orders, repeat=2):
        target: np.ndarray = np.zeros(shape, np.float64, order=target_order)
        rnnconvert.core.arrays.copy_tiled(target, np.array(wanted, order=source_order))
        np.testing.assert_array_equal(target, wanted)


@pytest.mark.parametrize("layout", [PAPER, NEGATED], ids=name)
@pytest.mark.parametrize("dtype", ["float16", BFLOAT16, "float32", "float64"], ids=str)
def test_a_negated_gate_is_the_other_sign(layout: Layout, dtype: str) -> None:
    form = Sizes("gru", 3, 5)
    stack = random_stack(form, 0, dtype)
    arrays = {key: np.asarray(packed) for key, packed in pack(layout, stack).items()}
    signs = dict(layout.order)
    for slot in slots(layout, form):
        expected = signs[slot.key[1]] * np.asarray(stack[0, 0].arrays[slot.key])
        np.testing.assert_array_equal(expected, slot.place.view(arrays[slot.array]))
    again = unpack(layout, form, arrays)[0, 0]
    for key, array in stack[0, 0].arrays.items():
        np.testing.assert_array_equal(bits(np.asarray(array)), bits(np.asarray(again[key])))


def reading_copies_nothing(layout: Layout, form: Sizes) -> None:
    arrays = random_arrays(layout, form)
    canonical = unpack(layout, form, arrays)
    for slot in [slot for slot in slots(layout, form) if slot.key[1] != UNUSED]:
        source = canonical[slot.layer, slot.direction][slot.key]
        if slot.sign > 0 and not slot.reinterpreted:
            assert isinstance(source, np.ndarray)
            assert np.shares_memory(source, arrays[slot.array])


def test_the_gates_of_a_layout_are_its_cells() -> None:
    each(LAYOUTS, gates_are_the_cells, name)


def gates_are_the_cells(layout: Layout) -> None:
    assert sorted(cell_of(layout).gates) == sorted([*(gate for gate, _ in layout.order), *layout.coupled])


PROOFS = ("executed: ", "golden: ", "corpus: ", "source: ")


def test_every_framework_has_a_system_that_says_its_proof() -> None:
    assert set(registry.systems()) == set(registry.frameworks())
    for system in registry.systems().values():
        assert system.proof.startswith(PROOFS), system.name
        assert system.title and system.versions, system.name


def test_a_layouts_own_proof_is_of_a_known_kind() -> None:
    proven = [layout for layout in registry.layouts().values() if layout.proof]
    assert all(layout.proof.startswith(PROOFS) for layout in proven), proven


APART = ("keras.", "tensorflow1.", "torch7.", "chainer.n_step_")
"""The layouts of which a file has one set of arrays for each direction."""
ALONE = ("coreml.gru", "coreml.rnn")
"""Layouts whose arrays have the names of another cell's that has two directions."""


def test_a_layout_holds_two_directions_only_where_arrays_or_files_tell_them_apart() -> None:
    named = {layout.name for layout in registry.layouts().values() if "direction" in " ".join(f"{t.name} {t.axes}" for t in layout.tensors)}
    both = {layout.name for layout in registry.layouts().values() if layout.holds.directions > 1}
    assert {name for name in both ^ named if not name.startswith(APART)} == {*ALONE}


def test_a_layout_says_its_source_and_its_framework() -> None:
    def check(layout: Layout) -> None:
        assert layout.source.strip()
        assert layout is registry.layouts()[layout.name]
        assert layout in registry.frameworks()[layout.framework]

    each(registry.layouts().values(), check, name)


def a_layout_knows_itself_by_its_shapes(layout: Layout, form: Sizes) -> None:
    expected = shapes(layout, form)
    if len(expected) < 2:
        assert fit(layout, expected) is None, "one array says nothing of its sizes"
        return
    guess = fit(layout, expected)
    assert guess is not None
    assert expected == shapes(layout, guess)
    assert form == guess


def a_wrong_shape_is_named(layout: Layout, form: Sizes) -> None:
    arrays = random_arrays(layout, form)
    key = next(iter(arrays))
    expected = arrays[key].shape
    arrays[key] = arrays[key][..., :-1]
    wrong = f"{key!r} has shape {arrays[key].shape}, expected {expected}"
    with pytest.raises(ValueError) as caught:
        unpack(layout, form, arrays)
    assert f"{layout.name}: {wrong}" == str(caught.value)


def a_missing_array_is_named(layout: Layout, form: Sizes) -> None:
    arrays = random_arrays(layout, form)
    key = list(arrays)[-1]
    expected = arrays.pop(key).shape
    with pytest.raises(ValueError) as caught:
        unpack(layout, form, arrays)
    assert f"{layout.name}: {key!r} is missing, expected an array of shape {expected}" == str(caught.value)


def changed(before: dict[str, tuple[int, ...]], **shape: tuple[int, ...] | None) -> dict[str, tuple[int, ...]]:
    merged = {**before, **shape}
    return {key: value for key, value in merged.items() if value is not None}


def test_a_misfit_is_said_in_words() -> None:
    layout = registry.layout("pytorch", "lstm")
    lstm = shapes(layout, Sizes("lstm", 3, 5))
    assert fit(layout, changed(lstm, bias_hh_l0=(21,))) is None
    assert misfit([layout], changed(lstm, bias_hh_l0=(21,))) == ("'bias_hh_l0' has shape (21,), expected (20,) (for 3 inputs and 5 units)")
    assert misfit([layout], changed(lstm, weight_hh_l0=None)) == (
        "'weight_hh_l0' is missing, expected shape (20, 5) (for 3 inputs and 5 units)"
    )
    assert misfit([layout], changed(lstm, bias_hh_l0=None)) == ("'bias_hh_l0' is missing, expected shape (20,) (for 3 inputs and 5 units)")
    assert misfit([layout], changed(lstm, extra=(2,))) == ("'extra' is not an array of pytorch.lstm (for 3 inputs and 5 units)")


def without_a_matrix_there_is_no_form(layout: Layout, form: Sizes) -> None:
    expected = shapes(layout, form)
    matrices = dict.fromkeys(slot.array for slot in slots(layout, form) if slot.key[0] in PLAIN)
    for key in drawn.drawn(matrices, 3, str(form)):
        assert fit(layout, changed(expected, **{key: None})) is None, key


PROPERTIES = (
    every_element_is_one_gates_once, every_gate_of_every_part_has_a_place, an_offset_is_where_the_view_starts,
    arrays_come_back_bit_for_bit, reading_copies_nothing, pieces_joined_are_the_array,
    a_layout_knows_itself_by_its_shapes, a_wrong_shape_is_named,
    a_missing_array_is_named, without_a_matrix_there_is_no_form,
)  # fmt: skip


@over_layouts
def test_a_layout_keeps_the_contract(layout: Layout) -> None:
    each(
        itertools.product(forms_of(layout), PROPERTIES),
        lambda case: case[1](layout, case[0]),
        lambda case: f"{name(case[0])}, {case[1].__name__}",
    )


def test_parts_that_cannot_lie_side_by_side_are_refused() -> None:
    with pytest.raises(ValueError, match=r"'weights_layer' cannot hold .* side by side"):
        shapes(registry.layouts()["onednn.lstm"], Sizes("lstm", 3, 5, 2, parts=PLAIN | {"input_bias"}))


def test_a_part_without_a_place_is_named() -> None:
    form = Sizes("lstm", 3, 5, parts=BOTH | {"peephole"})
    with pytest.raises(ValueError, match=r"pytorch\.lstm has no place for peephole of layer 0"):
        pack(registry.layout("pytorch", "lstm"), random_stack(form, 0))


def test_a_part_that_is_needed_is_named() -> None:
    form = Sizes("lstm", 5, 5, parts=BOTH - {"input"}, skip_input=True)
    stack = random_stack(form, 0)
    assert np.asarray(pack(registry.layout("cudnn", "lstm"), stack)["params"]).size == 4 * 25 + 8 * 5


def test_another_kind_is_refused() -> None:
    with pytest.raises(ValueError, match=r"keras\.lstm holds a lstm, not a gru"):
        shapes(registry.layout("keras", "lstm"), Sizes("gru", 3, 5))


def test_two_layers_in_an_array_for_one_are_refused() -> None:
    with pytest.raises(ValueError, match=r"'kernel' holds one layer, not 2"):
        shapes(registry.layout("keras", "lstm"), Sizes("lstm", 3, 5, 2))
