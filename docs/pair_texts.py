"""Make docs/pairs.md: what becomes of each cell of a format in every other, with the formats that are answered alike in one list."""

from __future__ import annotations

from collections import defaultdict

from system_pairs import CELLS, SystemPair, pairs

HEAD = """# What goes where

```console
$ rnnconvert inspect examples/encoder.keras --targets
...
```

tells of every layer of *your* file which formats can hold it, and why others cannot. This page tells it of every format's usual layers,
with its usual biases and run-time constants. Look for your cell, then for the line that begins with *From* and has your
format; what is true of all stands first:

- **exactly**: every number that is written is one of the source's, its negative, or zero
- **up to rounding**: exactly in real numbers, and rounded as any arithmetic is
- **refused**: the target lacks what is in parentheses

Otherwise parentheses name the [rewrites](rewrites.md) that do it. A layer of yours may fit where these do not: a bias of zero, for
example, can be left out.
"""

TAIL = """
## Evidence

The code that converts files makes this page. A test converts every pair, compares both ends with the float64
reference, and runs both where their systems can run.
"""

VERDICTS = {"exact": "exactly", "rewritten": "up to rounding", "refused": "refused"}


def pairs_pages() -> dict[str, str]:
    """Return docs/pairs.md: a section for each cell, in it a list for all sources that have the same answers."""
    page, every = [HEAD], list(pairs())
    for cell in CELLS:
        page.append(f"\n## {cell.name}\n")
        placed: dict[str, list[SystemPair]] = defaultdict(list)
        for pair in every:
            if pair.asked == cell:
                placed[pair.source].append(pair)
        sources: dict[str, list[str]] = defaultdict(list)
        for source, pairs_of_source in placed.items():
            sources[answers(pairs_of_source)].append(source)
        lines = [text.splitlines(keepends=True) for text in sources]
        common = [line for line in lines[0] if len(lines) > 1 and all(line in others for others in lines)]
        page += [f"\nFrom every format:\n\n{''.join(common)}"] if common else []
        for text, names in zip(lines, sources.values(), strict=True):
            page.append(f"\nFrom {', '.join(names)}:\n\n{''.join(line for line in text if line not in common)}")
    return {"pairs.md": "".join([*page, TAIL])}


def answers(pairs_of_source: list[SystemPair]) -> str:
    """Return the targets of one cell as a list, a line for each answer."""
    lines: dict[tuple[str, str], list[str]] = defaultdict(list)
    for pair in pairs_of_source:
        why = pair.feature or ", ".join(dict.fromkeys(step.rewrite for step in pair.steps))
        lines[pair.verdict, why].append(pair.target)
    order = list(VERDICTS)
    return "".join(
        f"- **{VERDICTS[verdict]}**{f' ({why})' if why else ''}: {', '.join(targets)}\n"
        for (verdict, why), targets in sorted(lines.items(), key=lambda line: (order.index(line[0][0]), line[0][1]))
    )
