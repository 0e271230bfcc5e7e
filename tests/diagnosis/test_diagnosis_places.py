"""A wrong convention in one layer, one direction or one array of a random stack is named, and its place."""

from __future__ import annotations

import dataclasses
import random
from dataclasses import dataclass

import numpy as np
import pytest

from rnnconvert.core.weights import Layer, Recurrent
from rnnconvert.diagnosis.by_arrays import explained, words_of
from rnnconvert.diagnosis.comparing import of_directions
from rnnconvert.diagnosis.diagnosis import Diagnosis, diagnose
from rnnconvert.diagnosis.fault_weights import with_direction
from rnnconvert.diagnosis.faults import ARRAYS, FAULTS, Fault, of_stack
from rnnconvert.diagnosis.files import diagnose_files
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.judging.cases import Draw, cases
from rnnconvert.language.layout import Sizes
from rnnconvert.rewrites import each
from tests.helpers import drawn
from tests.helpers.planted import MODELS, answers
from tests.helpers.stacks import BOTH, random_stack

# Functions of the candidate that grow without bound overflow in deep stacks: tests/diagnosis/test_diagnosis_samples.py plants these.
UNBOUNDED = {name for name in ARRAYS if " through " in name}
NAMES = [fault.name for fault in of_directions() if fault.name not in UNBOUNDED]

SQUARE = [random_stack(Sizes(kind, 4, 4, parts=BOTH), 1, np.float32) for kind in ("rnn", "gru")]


@dataclass(frozen=True)
class Planted:
    """A fault at some directions of a stack, and the two stacks."""

    fault: Fault
    words: str
    right: Recurrent
    wrong: Recurrent


def model_with(fault: Fault) -> Recurrent:
    """The first model that can have a fault: its cell and its parts are those of the stack that is drawn."""
    assert fault.direction is not None
    return next(stack for stack in (*MODELS.values(), *SQUARE) if fault.direction(stack.first) is not None)


def planted(name: str, seed: int) -> Planted:
    """A fault at a random place of a stack of random depth and directions."""
    fault = {**FAULTS, **ARRAYS}[name]
    assert fault.direction is not None
    model, draw = model_with(fault).first, random.Random(f"{seed} {name}")
    parts = frozenset(part for part, _ in model.arrays if not part.startswith("initial"))
    learned = {key: source for key, source in model.arrays.items() if key[0].startswith("initial")}
    for _ in range(100):
        hidden = draw.randint(3, 5)
        width = draw.choice([hidden, draw.randint(3, 6)])
        projection = draw.choice([hidden, 2]) if "projection" in parts else 0
        if learned:
            hidden = model.hidden_size
        form = Sizes(model.cell.kind, width, hidden, num_layers=draw.randint(2, 3), num_directions=draw.randint(1, 2),
                     parts=parts, projection_size=projection)  # fmt: skip
        stack = random_stack(form, draw.randrange(1 << 30), np.float32, model.cell, scale=1.5).replace(name="enc")
        stack = each(stack, lambda d: d.with_arrays(learned))
        layers = [[(index, number) for number in range(len(layer.directions))] for index, layer in enumerate(stack.layers)]
        places = draw.choice([*layers, *([at] for layer in layers for at in layer)])
        placed = fault.at_places(places, words_of(stack, places))
        assert placed is not None
        wrong = placed.change(stack) if placed.change is not None else None
        changed = [] if wrong is None else [at for at in places if wrong[at] is not stack[at]]
        if wrong is not None and changed == places:
            return Planted(fault, words_of(stack, places), stack, wrong)
    raise AssertionError(f"no stack was drawn that can have the fault {name!r}")


def same(first: Recurrent | None, second: Recurrent) -> bool:
    """Whether two stacks have the same weights."""
    return first is not None and all(
        np.array_equal(np.asarray(array), np.asarray(b.arrays[key]))
        for (*_, a), (*_, b) in zip(first.directions(), second.directions(), strict=True)
        for key, array in a.arrays.items()
    )


def check(diagnosis: Diagnosis, case: Planted) -> None:
    """The fault is named with its place, by another name of the same change, or told to be beyond these inputs' power to
    distinguish.
    """
    sentences = " | ".join(diagnosis.sentences)
    alike = f"{case.fault.sentence} in {case.words} only"
    named = diagnosis.fault == f"{case.fault.name}, {case.words} only" or ("cannot distinguish" in sentences and alike in sentences)
    everywhere = FAULTS.get(diagnosis.fault)  # of two layers, the upper one is every layer above the first
    named = named or (everywhere is not None and everywhere.change is not None and same(everywhere.change(case.right), case.wrong))
    assert named, f"planted {case.fault.name!r} in {case.words} of {case.right.describe()}; said: {sentences}"


@drawn.looped(13, name=NAMES, number=range(3))
def test_a_fault_in_one_place_of_a_file_is_named(name: str, number: int) -> None:
    case = planted(name, drawn.SEED + number)
    a, b = (Checkpoint("memory", "canonical", {"enc": stack}) for stack in (case.right, case.wrong))
    (findings,) = diagnose_files(a, b, draw=Draw(seed=number))
    assert not findings.equal and findings.diagnosis.kind == "weights"
    check(findings.diagnosis, case)


@drawn.looped(13, name=NAMES, number=range(3))
def test_a_fault_in_one_place_is_named_by_its_outputs(name: str, number: int) -> None:
    case = planted(name, drawn.SEED + 10 + number)
    inputs = cases(case.right, Draw(seed=number, batch=5, time=9))[0]
    check(diagnose(case.right, answers(case.wrong, inputs), np.float32), case)


SIZES = Sizes("lstm", 4, 4, num_layers=3, num_directions=2, parts=BOTH)
EVEN = random_stack(Sizes("lstm", 8, 4, num_layers=3, num_directions=2, parts=BOTH), 5, np.float32, scale=1.5).replace(name="enc")


@pytest.mark.parametrize(
    "fault", [exchange for exchange in of_stack(EVEN) if exchange.change and exchange.change(EVEN)], ids=lambda exchange: exchange.name
)
@pytest.mark.parametrize("files", [True, False])
def test_whole_layers_exchanged_are_named(fault: Fault, files: bool) -> None:
    assert fault.change is not None
    wrong = fault.change(EVEN)
    assert wrong is not None
    inputs = cases(EVEN, Draw(seed=2))[0]
    diagnosis = diagnose(EVEN, answers(wrong, inputs), np.float32, wrong if files else None)
    assert fault.name == diagnosis.fault or (fault.name == "layers 0 and 2 exchanged" and diagnosis.fault == "layers in reverse order")


def test_faults_of_several_places_are_named_together() -> None:
    stack = random_stack(SIZES, 1, np.float32, scale=1.5).replace(name="enc")
    first = FAULTS["gates i and f swapped"].at(0, 1, "layer 0, the backward direction")
    second = ARRAYS["gate g of the recurrent matrix transposed"].at(2, 0, "layer 2, the forward direction")
    assert first is not None and second is not None and first.change is not None and second.change is not None
    wrong = first.change(stack)
    wrong = second.change(wrong) if wrong is not None else None
    assert wrong is not None
    inputs = cases(stack, Draw(seed=2))[0]
    for counterpart in (wrong, None):
        diagnosis = diagnose(stack, answers(wrong, inputs), np.float32, counterpart)
        assert diagnosis.fault == f"{first.name} and {second.name}", diagnosis.sentences


def test_a_fault_everywhere_is_one_fault_without_a_place() -> None:
    stack = random_stack(SIZES, 1, np.float32, scale=1.5)
    for name in ("gates f and g swapped", "recurrent matrix transposed", "biases dropped"):
        wrong = FAULTS[name].change(stack)  # type: ignore[misc]
        assert wrong is not None
        explanation = explained(stack, wrong)
        assert explanation is not None and [fault.name for fault in explanation.faults] == [name]


def test_arrays_that_moved_elsewhere_are_found_and_others_are_said_to_be_unknown() -> None:
    stack = random_stack(SIZES, 3, np.float32).replace(name="enc")
    source = np.asarray(stack[1, 0].arrays["recurrent", "o"]).T
    noise = np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32)
    wrong = with_direction(stack, 2, 1, stack[2, 1].with_arrays({("recurrent", "i"): source, ("recurrent", "g"): noise}))
    diagnosis = diagnose(stack, answers(wrong, cases(stack)[0]), np.float32, wrong)
    sentences = " | ".join(diagnosis.sentences)
    assert diagnosis.fault == ""
    assert (
        "recurrent of gate i in layer 2, the backward direction is A's recurrent of gate o in layer 1, the forward direction, transposed"
        in sentences
    )
    assert "not among A's arrays in any place: B's recurrent of gate g in layer 2, the backward direction" in sentences


def test_what_was_searched_in_vain_is_said() -> None:
    stack = random_stack(dataclasses.replace(SIZES, num_layers=2), 3, np.float32)
    noise = np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32)
    wrong = with_direction(stack, 1, 0, stack[1, 0].with_arrays({("recurrent", "g"): noise}))
    diagnosis = diagnose(stack, answers(wrong, cases(stack, Draw(("states",), batch=2, time=4))[0]), np.float32)
    assert diagnosis.fault == "" and diagnosis.kind == ""
    assert "tried in the whole stack, its matrices and gates, and in each layer and direction" in diagnosis.sentences[0]
    assert "Up to layer 1, the forward direction every final state is explained" in diagnosis.sentences[0]


def test_without_final_states_places_are_searched_by_whole_runs() -> None:
    stack = random_stack(Sizes("gru", 3, 4, num_layers=2, parts=BOTH), 3, np.float32, scale=1.5)
    fault = FAULTS["gate z negated"].at(1, 0, "layer 1")
    assert fault is not None and fault.change is not None
    wrong = fault.change(stack)
    assert wrong is not None
    outputs_alone = [(case, type(outputs)(outputs.y, ())) for case, outputs in answers(wrong, cases(stack)[0])]
    assert diagnose(stack, outputs_alone, np.float32).fault == "gate z negated, layer 1 only"


def test_a_wrong_run_of_wrong_weights_names_both() -> None:
    stack = MODELS["two layers, two directions"]
    wrong = FAULTS["gates i and f swapped"].change(stack)  # type: ignore[misc]
    assert wrong is not None
    runs = answers(wrong, cases(stack, Draw(seed=3))[0], FAULTS["initial states ignored"])
    diagnosis = diagnose(stack, runs, np.float32, wrong)
    assert diagnosis.fault == "gates i and f swapped and initial states ignored"


def test_merges_are_compared() -> None:
    stack = MODELS["directions added"]
    wrong = stack.replace(layers=tuple(Layer(layer.directions, "ave") for layer in stack.layers))
    explanation = explained(stack, wrong)
    assert explanation is not None and [fault.name for fault in explanation.faults] == ["directions joined by ave"]
