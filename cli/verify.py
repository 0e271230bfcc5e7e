"""rnnconvert verify and run: whether models compute the same."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from rnnconvert.cli import completion
from rnnconvert.cli.progress import watching
from rnnconvert.cli.proofs import annotate, proving
from rnnconvert.cli.terminal import FilePath, emit, finish, format_option, say, setting, whole_numbers
from rnnconvert.cli.values import in_one
from rnnconvert.core.errors import UnreadableError, UsageError
from rnnconvert.core.printable import command_line

_VERIFY = """\b
Examples:
  rnnconvert verify model.h5 model.onnx
  rnnconvert verify model.pt model.onnx --report report.html
  rnnconvert verify model.keras --on all --gradients
  rnnconvert verify a.keras b.onnx --inputs val.npz
  rnnconvert verify a.pt b.onnx --pair encoder=rnn_1 --atol y:1e-4
  rnnconvert verify results-from-the-gpu.safetensors model.onnx
  rnnconvert verify results.safetensors --atol 1e-5
"""

_RUN = """\b
Examples:
  rnnconvert run model.pt --on torch-cuda --save results.safetensors
  rnnconvert run model.onnx --gradients --save a.safetensors
  rnnconvert run model.pt --load-inputs a.safetensors --save b.safetensors
"""

Command = Callable[..., Any]


_SHARED: list[Callable[[Command], Command]] = [
    click.option(
        "--on", multiple=True, metavar="EXECUTOR", shell_complete=completion.executors, help="Run on this executor, or on all. Repeatable."
    ),
    click.option("--layer", "layers", multiple=True, metavar="NAME", shell_complete=completion.layers, help="Only this layer. Repeatable."),
    click.option(
        "--case",
        "cases",
        multiple=True,
        metavar="CASE",
        shell_complete=completion.cases,
        help="Run this case, or all; by default, the usual six. Repeatable.",
    ),
    click.option(
        "--inputs",
        type=FilePath(),
        metavar="FILE.npz",
        help="Your own inputs: of the models, by name or in order; or of layers: x (time, batch, in), optionally h_0, c_0 and lengths.",
    ),
    click.option("--load-inputs", type=FilePath(), metavar="FILE", help="Reuse the inputs of saved results."),
    click.option("--save-inputs", type=FilePath(), metavar="FILE", help="Save the inputs, for another machine."),
    click.option("--seed", type=click.IntRange(0), default=0, show_default=True, metavar="N", help="Seed of the random inputs."),
    click.option("--batch", type=click.IntRange(1), default=4, show_default=True, metavar="N", help="Sequences in a batch."),
    click.option("--time", type=click.IntRange(1), default=12, show_default=True, metavar="N", help="Steps of a sequence."),
    click.option("--lengths", callback=whole_numbers, metavar="N,N,...", help="Lengths of the sequences; by default, random."),
    click.option(
        "--timeout",
        type=click.FloatRange(0, min_open=True),
        metavar="SECONDS",
        help="Time limit of an executor; by default, 600 and more for large files.",
    ),
    click.option("--gradients", is_flag=True, help="Also compare gradients (needs torch)."),
    setting,
]


def _shared(command: Command) -> Command:
    for option in reversed(_SHARED):
        command = option(command)
    return command


def _plan(arguments: dict[str, Any]) -> Any:
    from rnnconvert.judging.case_kinds import CASES
    from rnnconvert.judging.cases import DEFAULT_CASES
    from rnnconvert.verification.plan import Plan
    from rnnconvert.verification.results import read

    stored = None
    if arguments["load_inputs"]:
        stored = read(arguments["load_inputs"])
        if stored is None:
            problem = "No such file" if not Path(arguments["load_inputs"]).is_file() else "it holds no inputs"
            raise UnreadableError(arguments["load_inputs"], problem, "Write inputs with --save-inputs, or with run --save.")
    names = arguments["cases"]
    return Plan(
        on=arguments["on"],
        cases=tuple(CASES) if "all" in names else names or DEFAULT_CASES,
        seed=arguments["seed"],
        batch=arguments["batch"],
        time=arguments["time"],
        lengths=arguments["lengths"],
        gradients=arguments["gradients"],
        inputs=arguments["inputs"],
        layers=arguments["layers"],
        pairs=arguments.get("pairs", ()),
        settings=arguments["settings"],
        given=stored,
        timeout=arguments["timeout"],
        **{key: arguments[key] for key in ("settings_a", "settings_b", "format_a", "format_b") if key in arguments},
    )


def _tolerances(words: tuple[str, ...], option: str) -> dict[str, float]:
    tolerances = {}
    for word in words:
        output, _, number = word.rpartition(":")
        try:
            tolerances[output] = float(number)
        except ValueError:
            raise UsageError(f"{option} {word}: expected a number, or OUTPUT:NUMBER as in y:1e-4") from None
    return tolerances


@click.command(epilog=_RUN)
@click.argument("model", type=FilePath())
@_shared
@format_option("--from", "format_a", "Format of MODEL; by default, its content decides.")
@click.option("--save", type=FilePath(), metavar="FILE.safetensors", help="Save inputs, outputs, gradients and versions.")
@click.option("--jobs", type=click.IntRange(1), metavar="N", help="Executors at a time; by default, one per core.")
@click.option("--json", "as_json", is_flag=True, help="Print what ran as JSON.")
@click.option("-q", "--quiet", is_flag=True, help="Print only errors.")
def run(model: str, save: str | None, jobs: int | None, as_json: bool, quiet: bool, **arguments: Any) -> None:
    """Run the recurrent layers of MODEL and save their outputs, to compare them elsewhere."""
    from dataclasses import asdict

    from rnnconvert.verification import explaining
    from rnnconvert.verification import verify as equivalence
    from rnnconvert.verification.judgements import passes
    from rnnconvert.verification.running import REFERENCE

    if not save and not arguments["save_inputs"]:
        raise UsageError("nothing would be kept. Add --save results.safetensors (or --save-inputs FILE for the inputs alone)")
    if save and not save.lower().endswith(".safetensors"):
        raise UsageError(f"{save}: results are kept in a .safetensors file, by whose ending verify knows them. Choose such a name")
    explaining.apart([model, arguments["inputs"], arguments["load_inputs"]], [save, arguments["save_inputs"]])
    with watching(quiet or as_json) as watch:
        results = equivalence.run(model, _plan(arguments), watch=watch, jobs=jobs)
    if arguments["save_inputs"]:
        equivalence.keep_inputs(results, arguments["save_inputs"])
    if save:
        results.save(save)
    runs = [(layer, layer_run, passes(layer, layer_run)) for layer in results.layers.values() for layer_run in layer.runs]
    code = 0 if any(layer_run.status == "ran" and layer_run.executor != REFERENCE for _, layer_run, _ in runs) else 5
    if as_json:
        emit(
            {
                "model": asdict(results.models[0]),
                "kept": save,
                "inputs": arguments["save_inputs"],
                "exit_code": code,
                "runs": [
                    {
                        "layer": layer.name,
                        "executor": layer_run.executor,
                        "device": layer_run.device,
                        "status": layer_run.status,
                        "reason": layer_run.reason,
                        "agrees": agrees if layer_run.status == "ran" else None,
                        "versions": layer_run.versions,
                    }
                    for layer, layer_run, agrees in runs
                ],
                "warnings": results.warnings,
            }
        )
        sys.exit(code)
    if save:
        say(f"kept {save}", quiet)
    for layer, each_run, agrees in runs:
        if each_run.status != "ran":
            state = f"{each_run.status}: {each_run.reason}"
        elif agrees:
            state = "agrees"
        else:
            state = "differs"
        say(f"  {layer.name or '(the module itself)'} on {each_run.executor} ({each_run.device}): {state}", quiet)
    if code:
        say("nothing ran. List the executors with: rnnconvert executors", quiet)
    sys.exit(code)


@click.command(epilog=_VERIFY)
@click.argument("a", type=FilePath())
@click.argument("b", type=FilePath(), required=False)
@_shared
@click.option("--pair", "pairs", multiple=True, metavar="A=B", help="Pair a layer of A with one of B. Repeatable.")
@format_option("--from-a", "format_a", "Format of A; by default, its content decides.")
@format_option("--from-b", "format_b", "Format of B; by default, its content decides.")
@click.option("--set-a", "settings_a", multiple=True, metavar="[LAYER:]KEY=VALUE", help="Like --set, for A only.")
@click.option("--set-b", "settings_b", multiple=True, metavar="[LAYER:]KEY=VALUE", help="Like --set, for B only.")
@click.option("--atol", multiple=True, metavar="[OUTPUT:]NUMBER", help="Absolute tolerance; by default, what rounding explains.")
@click.option("--rtol", multiple=True, metavar="[OUTPUT:]NUMBER", help="Relative tolerance.")
@click.option(
    "--report",
    "reports",
    multiple=True,
    type=FilePath(),
    metavar="FILE",
    help="Write a report: .html, .md, .json, .xml (JUnit) or .sarif. Repeatable.",
)
@click.option("--sarif", type=FilePath(), metavar="FILE", help="Write what is not equal as SARIF, for code scanning.")
@click.option("--save-outputs", type=FilePath(), metavar="FILE", help="Save what ran, to judge it again.")
@proving
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option("-q", "--quiet", is_flag=True, help="Print only the verdict.")
@in_one
def verify(asked: Any) -> None:
    """Prove that A and B compute the same; or A, in every framework.

    Both are model files, or results that `run` saved. "Equal" speaks of whole models, which ran on the same inputs; otherwise of every
    weight. Where only recurrent layers could be compared, the verdict says so and names the rest.
    """
    from rnnconvert import reports as forms
    from rnnconvert.verification import explaining
    from rnnconvert.verification import verify as equivalence

    reports = asked.reports
    reports = (*reports, *([asked.sarif] if asked.sarif else []))
    for path in reports:
        forms.check(path)
    read, written = ([asked.a, asked.b, asked.inputs, asked.load_inputs], [asked.save_outputs, asked.save_inputs])
    explaining.apart(read, [*written, *dict.fromkeys(reports)])
    plan = _plan(vars(asked))
    with watching(asked.quiet or asked.as_json) as watch:
        report = equivalence.verify(
            asked.a,
            asked.b,
            plan,
            atol=_tolerances(asked.atol, "--atol"),
            rtol=_tolerances(asked.rtol, "--rtol"),
            save=asked.save_outputs,
            save_inputs=asked.save_inputs,
            watch=watch,
            command=_command(),
            jobs=asked.jobs,
            cache=asked.cache,
            explain=not asked.no_explain,
            strict=asked.strict,
        )
    annotate(report.document)
    if not asked.as_json:
        finish(report, reports, asked.quiet)
        return
    for path in reports:
        report.write(path)
    forms.summary_to_github(report.document)
    emit(report.document)
    sys.exit(report.exit_code)


def _command() -> str:
    """Return the command line that was given; "" where the program does not stand at its beginning."""
    return f"rnnconvert {command_line(sys.argv[1:])}" if sys.argv[1:2] == ["verify"] else ""
