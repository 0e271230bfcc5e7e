"""Chains of many layers: the work that writers do grows as the chain does."""

from __future__ import annotations

from pathlib import Path

import pytest

from rnnconvert.formats.tfjs.export_nodes import GraphModelParts
from rnnconvert.scaffolding import kinds
from rnnconvert.scaffolding.description import Node
from rnnconvert.scaffolding.scaffold import scaffold
from tests.formats.c_header.test_c_header_models import named


def test_code_of_keras_asks_each_node_for_what_it_reads_a_few_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts, asked, reads = [], [0], Node.reads

    def counted(node: Node[kinds.Kind]) -> object:
        asked[0] += 1
        return reads(node)

    monkeypatch.setattr(Node, "reads", counted)
    for length in (20, 40):
        asked[0] = 0
        scaffold(named(tmp_path / f"{length}.onnx", *(f"l{number}" for number in range(length))), "keras")
        counts.append(asked[0])
    assert counts[1] < 2.5 * counts[0], counts


def test_names_of_nodes_are_counted_on() -> None:
    class Counted(set[str]):
        asked = 0

        def __contains__(self, name: object) -> bool:
            Counted.asked += 1
            return super().__contains__(name)

    parts = GraphModelParts(["a_3"])
    parts.names = Counted(parts.names)
    names = [parts.new_name("a") for _ in range(500)]
    assert names[:4] == ["a", "a_1", "a_2", "a_4"] and len(set(names)) == 500
    assert Counted.asked < 2000
