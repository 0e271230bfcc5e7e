"""Load the state of an optimizer to match the weights that were loaded: training continues where it stopped.

report = load_into(model, "model.pt") load_optimizer_into(optimizer, "model.pt", report)
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rnnconvert.core.errors import TransplantError, UsageError
from rnnconvert.files.checkpoint import Checkpoint
from rnnconvert.files.load import load
from rnnconvert.models.model import Model
from rnnconvert.models.report import Transplant
from rnnconvert.training.moved import ACCEPTS, MovedOptimizer
from rnnconvert.training.optimizer_readers import of_object, optimizers
from rnnconvert.training.preparing import StateTransfer
from rnnconvert.training.state import WORDS, CallerFacts, OptimizerState


def load_optimizer_into(
    target: Any,
    source: Any,
    report: Transplant,
    *,
    accept: Iterable[str] = (),
    set_hyperparameters: bool = False,
    parameters: Sequence[str] | None = None,
    hyperparameters: Mapping[str, Any] | None = None,
    dry_run: bool = False,
) -> MovedOptimizer:
    """Fill an optimizer with the state of another one, to match the weights that `load_into` has moved.

    target               a torch.optim.Optimizer or a built Keras optimizer of the model that was filled, or an optax state
    source               such an optimizer of the source, a torch optimizer's state_dict(), or a file that holds one
    report               what `load_into` returned: the state moves as the weights did
    accept               what you take over: names of hyperparameters that differ, and of ACCEPTS
    set_hyperparameters  give the target the source's hyperparameters where they differ
    parameters           the source's weights in the order in which its optimizer numbers them, if it does not state it
    hyperparameters      what the source's state does not state, in our words: {"learning_rate": 1e-3}
    dry_run              find out what would be done, and change nothing

    Raises TransplantError with everything at once that stands in the way of the same next step, UsageError for an unknown
    optimizer or one whose state is incomplete, and what `load` raises. On any error the target is left unchanged.
    """
    plan = report.plan
    if plan is None:
        raise UsageError("this report does not record how the weights moved. Hand in the one that load_into returned")
    accepted = _accepted(accept)
    giving = _source(source, plan.source, CallerFacts(None if parameters is None else tuple(parameters), hyperparameters or {}))
    framework = of_object(target)
    taking = framework.of_live(target, plan.target, CallerFacts())
    if giving.kind != taking.kind:
        raise TransplantError(
            taking.title,
            giving.title,
            [
                f"the source's optimizer is of the kind {giving.kind}, but the target's is {taking.kind}. Make the target's like the "
                f"source's, with {_described(giving, framework.spelled)}"
            ],
        )
    work = StateTransfer(plan, giving, taking, accepted, set_hyperparameters, framework.spelled)
    work.notes += [f"the layers train differently: {difference}" for difference in report.differences if difference.matters == "training"]
    state = work.prepared()
    if work.problems:
        raise TransplantError(taking.title, giving.title, work.problems)
    filled = target if dry_run else framework.fill(target, plan.target, state, work.frozen)
    return work.report(filled)


def _accepted(accept: Iterable[str]) -> frozenset[str]:
    accepted = frozenset(accept)
    valid = {*ACCEPTS, *(word for words in WORDS.values() for word in words)}
    unknown = sorted(accepted - valid)
    if unknown:
        raise UsageError(f"accept: unknown {unknown[0]!r}. Give a hyperparameter, or one of {', '.join(ACCEPTS)}")
    return accepted


def _source(source: Any, model: Model, facts: CallerFacts) -> OptimizerState:
    wrong = [word for word in facts.hyperparameters if not any(word in words for words in WORDS.values())]
    if wrong:
        valid = dict.fromkeys(word for words in WORDS.values() for word in words)
        raise UsageError(f"hyperparameters: unknown {wrong[0]!r}. Choose from: {', '.join(valid)}")
    if isinstance(source, (str, os.PathLike)):
        source = load(source)
    if not isinstance(source, Checkpoint):
        return of_object(source).of_live(source, model, facts)
    reader = optimizers().get(source.format)
    state = None if reader is None else reader.of_file(source, model, facts)
    if state is None:
        raise UsageError(f"{source.path} holds no optimizer state. Save it with the optimizer, or hand in the optimizer")
    return state


def _described(state: OptimizerState, spelled: Any) -> str:
    """Return an optimizer's hyperparameters as the other framework writes them."""
    settings = next(iter(state.settings.values()), {})
    return state.kind + (f"({', '.join(spelled(word, settings[word]) for word in WORDS[state.kind] if word in settings)})")
