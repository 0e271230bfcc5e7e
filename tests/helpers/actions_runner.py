"""A stand-in for GitHub's runner: it runs the steps of a composite action, and rejects what GitHub rejects.

The rules are those of actions/runner (src/Runner.Worker/action_yaml.json: keys, contexts), actions/toolkit
(packages/artifact/src/internal/upload/path-and-artifact-name-validation.ts), actions/cache (packages/cache/src/cache.ts: checkKey)
and code scanning (SARIF 2.1.0). An input that an action does not have is a warning there, and an error here.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_NOT_IN_NAMES = '":<>|*?\r\n\\/'
_CONTEXTS = ("github", "inputs", "strategy", "matrix", "steps", "job", "runner", "env")
_STEP = {"name", "id", "if", "uses", "with", "run", "shell", "env", "working-directory", "continue-on-error"}
_TOKEN = re.compile(r"\s*(&&|\|\||==|!=|!|\(|\)|'(?:[^']|'')*'|[A-Za-z_][\w.-]*)")


class RejectedError(Exception):
    """What GitHub would not take."""


@dataclass
class Run:
    """A run of a workflow, which its jobs share.

    artifacts  the files of each artifact, by its name
    scanned    the categories that code scanning has got, and the documents
    cached     the keys of caches
    """

    artifacts: dict[str, list[Path]] = field(default_factory=dict)
    scanned: dict[str, dict[str, Any]] = field(default_factory=dict)
    cached: list[str] = field(default_factory=list)


@dataclass
class Done:
    """What became of an action in a job: whether it failed, its outputs, and the text of its steps."""

    failed: bool
    outputs: dict[str, str]
    text: str


Shell = Callable[..., "subprocess.CompletedProcess[str]"]


class Job:
    """A job of a run.

    folder  the workspace
    shell   runs bash commands there: (command, folder, **variables)
    index   its number in a matrix
    """

    def __init__(self, run: Run, folder: Path, shell: Shell, *, name: str = "models", index: int = 0) -> None:
        self.run, self.folder, self.shell = run, folder, shell
        self.context: dict[str, Any] = {
            "github": {"action_path": "/action", "job": name, "run_id": "7", "run_attempt": "1"},
            "strategy": {"job-index": str(index)},
            "runner": {"os": "Linux"},
            "steps": {},
        }

    def use(self, action: Mapping[str, Any], skip: tuple[str, ...] = (), **inputs: str) -> Done:
        """Run an action.

        skip    the names of steps that are not run
        inputs  with `_` for `-`
        """
        arguments = {name.replace("_", "-"): value for name, value in inputs.items()}
        if strange := arguments.keys() - action["inputs"].keys():
            raise RejectedError(f"unexpected inputs {sorted(strange)}")
        defaults = {name: str(entry.get("default", "")) for name, entry in action["inputs"].items()}
        self.context["inputs"] = {**defaults, **arguments}
        failed, texts = False, []
        for step in action["runs"]["steps"]:
            self._check(step)
            if step["name"] in skip or not self._condition(step.get("if", "success()"), failed):
                continue
            if "run" in step:
                ok, text = self._shell_step(step)
                texts.append(text)
            else:
                self._action_step(step)
                ok = True
            failed |= not ok and not step.get("continue-on-error")
        outputs = {name: self._filled(entry["value"]) for name, entry in action.get("outputs", {}).items()}
        return Done(failed, outputs, "".join(texts))

    def _check(self, step: Mapping[str, Any]) -> None:
        if strange := step.keys() - _STEP:
            raise RejectedError(f"unexpected keys of a step: {sorted(strange)}")
        if ("run" in step) == ("uses" in step) or ("run" in step) != ("shell" in step):
            raise RejectedError("a step of a composite action has `uses`, or `run` with `shell`")

    def _shell_step(self, step: Mapping[str, Any]) -> tuple[bool, str]:
        output = self.folder / ".github_output"
        output.write_text("")
        variables = {key: self._filled(str(text)) for key, text in step.get("env", {}).items()}
        variables |= {"GITHUB_OUTPUT": str(output), "GITHUB_ACTIONS": "true"}
        folder = (self.folder / self._filled(step.get("working-directory", "."))).resolve()
        if not folder.is_dir():
            raise RejectedError(f"no folder {folder}")
        done = self.shell(f"set -eo pipefail\n{step['run']}", folder, **variables)
        outputs = {}
        for line in output.read_text().splitlines():
            name, equals, value = line.partition("=")
            if not equals:
                raise RejectedError(f"Invalid format {line!r}")
            outputs[name] = value
        if "id" in step:
            self.context["steps"][step["id"]] = {"outputs": outputs}
        return done.returncode == 0, done.stdout + done.stderr

    def _action_step(self, step: Mapping[str, Any]) -> None:
        name, _, version = step["uses"].partition("@")
        if not version:
            raise RejectedError(f"{step['uses']} has no version")
        words = {key: self._filled(str(text)) for key, text in step.get("with", {}).items()}
        action, accepted = _ACTIONS[name]
        if strange := words.keys() - accepted:
            raise RejectedError(f"unexpected inputs of {name}: {sorted(strange)}")
        action(self.run, self.folder, words)

    def _filled(self, text: str) -> str:
        return re.sub(r"\$\{\{(.*?)\}\}", lambda match: str(self._value(match[1], False)), text)

    def _condition(self, text: str, failed: bool) -> bool:
        if not re.search(r"\b(always|success|failure|cancelled)\(", text):
            text = f"success() && ({text})"
        return bool(self._value(text.removeprefix("${{").removesuffix("}}"), failed))

    def _value(self, expression: str, failed: bool) -> Any:
        python, at = "", 0
        words = {"&&": " and ", "||": " or ", "!": " not "}
        while expression[at:].strip():
            match = _TOKEN.match(expression, at)
            if match is None:
                raise RejectedError(f"Unexpected symbol in {expression!r}")
            token, at = match[1], match.end()
            if token[0].isalpha() and token not in ("always", "success", "failure", "cancelled", "true", "false"):
                python += repr(self._looked_up(token))
            else:
                python += words.get(token, token)
        names = {"always": lambda: True, "success": lambda: not failed, "failure": lambda: failed, "cancelled": lambda: False}
        return eval(python, {"__builtins__": {}}, {**names, "true": True, "false": False})  # of our own action.yml

    def _looked_up(self, name: str) -> str:
        first, *rest = name.split(".")
        if first not in _CONTEXTS:
            raise RejectedError(f"Unrecognized named-value: {first!r}")
        value: Any = self.context.get(first, {})
        for part in rest:
            value = value.get(part, {})
        return value if isinstance(value, str) else ""


def _upload_artifact(run: Run, folder: Path, words: Mapping[str, str]) -> None:
    name = words.get("name", "artifact")
    if not name or set(name) & set(_NOT_IN_NAMES):
        raise RejectedError(f"The artifact name is not valid: {name}")
    path = folder / words["path"]
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path] * path.is_file()
    if any(set(str(file.relative_to(path))) & set(_NOT_IN_NAMES[:-2]) for file in files if file != path):
        raise RejectedError("The path for one of the files in artifact is not valid")
    if not files:
        if words.get("if-no-files-found") == "error":
            raise RejectedError("No files were found")
        return
    if name in run.artifacts:
        raise RejectedError("Failed to CreateArtifact: (409) Conflict: an artifact with this name already exists")
    run.artifacts[name] = files


def _cache(run: Run, folder: Path, words: Mapping[str, str]) -> None:
    for key in (words["key"], *words.get("restore-keys", "").splitlines()):
        if not key or len(key) > 512 or "," in key:
            raise RejectedError(f"Key Validation Error: {key}")
    if not words["path"].strip():
        raise RejectedError("Path Validation Error")
    run.cached.append(words["key"])


def _upload_sarif(run: Run, folder: Path, words: Mapping[str, str]) -> None:
    path = folder / words["sarif_file"]
    if not path.is_file():
        raise RejectedError(f"Path does not exist: {path}")
    document = json.loads(path.read_text())
    if document.get("version") != "2.1.0" or not document.get("runs"):
        raise RejectedError("Invalid SARIF. Missing 'runs' array")
    if any("driver" not in scan.get("tool", {}) or "results" not in scan for scan in document["runs"]):
        raise RejectedError("Invalid SARIF. A run needs a tool and results")
    category = words.get("category", "")
    if category in run.scanned:
        raise RejectedError(f"only one upload for each category is allowed: {category!r}")
    run.scanned[category] = document


_ACTIONS: dict[str, tuple[Callable[[Run, Path, Mapping[str, str]], None], set[str]]] = {
    "actions/upload-artifact": (
        _upload_artifact,
        {"name", "path", "if-no-files-found", "retention-days", "compression-level", "overwrite", "include-hidden-files"},
    ),
    "actions/cache": (_cache, {"path", "key", "restore-keys", "upload-chunk-size", "enableCrossOsArchive", "fail-on-cache-miss"}),
    "github/codeql-action/upload-sarif": (_upload_sarif, {"sarif_file", "category", "checkout_path", "ref", "sha", "token"}),
}  # fmt: skip

assert os.sep == "/", "the stand-in imitates a runner of Linux"
