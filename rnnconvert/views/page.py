"""A checkpoint, or two side by side, as one self-contained page: no network, no script."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from rnnconvert.core.printable import called
from rnnconvert.core.weights import Direction, Recurrent
from rnnconvert.reports.html_layer import scrolling, table
from rnnconvert.reports.markup import Markup, el, join, page, section
from rnnconvert.reports.words import SYMBOLS, TONES, digits_of
from rnnconvert.views.measured import BINS, ArrayView, DirectionView, Heatmap, Histogram
from rnnconvert.views.png import to_url
from rnnconvert.views.spectral import Radius

STYLE = """
:root { --minus: #1f69b4; --plus: #b35309; }
@media (prefers-color-scheme: dark) { :root { --minus: #6fb1f2; --plus: #f2a65a; } }
.layer { content-visibility: auto; contain-intrinsic-size: auto 4rem; }
.layer > .body > * { margin-top: 1rem; }
.maps { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(45%, 13rem), 1fr)); gap: 1.2rem; }
.map { background: var(--shade); border-radius: .5rem; padding: .7rem; }
.map img { display: block; width: 100%; max-height: 16rem; image-rendering: pixelated;
  border: 1px solid var(--line); background: var(--card); }
.map figcaption { font-size: .85rem; margin: 0 0 .4rem; }
.beside { display: grid; grid-template-columns: repeat(3, minmax(0, 1fr)); gap: .8rem; }
.beside figure { max-width: none; }
.histogram { display: block; width: 100%; height: 3.2rem; margin-top: .4rem; }
.histogram .plus { fill: var(--plus); } .histogram .minus { fill: var(--minus); } .histogram .zero { fill: var(--soft); }
.diagram { max-width: 100%; height: auto; }
.diagram rect { fill: var(--shade); stroke: var(--line); } .diagram text { fill: var(--ink); font-size: 13px; }
.diagram .small { fill: var(--soft); font-size: 11px; } .diagram path { stroke: var(--soft); fill: none; stroke-width: 1.5; }
.model rect { fill: var(--shade); stroke: var(--line); } .model rect.plain { fill: var(--card); } .model rect.input { fill: none; }
.model rect.recurrent { fill: var(--good-page); stroke: var(--good); }
.model rect.unknown { fill: none; stroke: var(--bad); stroke-dasharray: 4 3; }
.model text { fill: var(--ink); font-size: 13px; text-anchor: middle; } .model .small { fill: var(--soft); font-size: 11px; }
.model path { stroke: var(--soft); fill: none; stroke-width: 1.2; } .model a text { fill: var(--link); text-decoration: underline; }
.models { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr)); gap: 1rem; }
.models figure { max-width: none; } .models .scroll { width: fit-content; max-width: 100%; }
.scale { display: flex; align-items: center; gap: .6rem; font-size: .85rem; }
.scale i { display: inline-block; width: 9rem; max-width: 30vw; height: .8rem; border: 1px solid var(--line);
  background: linear-gradient(90deg, #1f69b4, transparent 50%, #d6640c); }
"""

_FEW = 3
"""The most layers that are shown unfolded."""

_WORDS = {
    "input": "input, W",
    "recurrent": "recurrent, R",
    "projection": "projection",
    "input_bias": "input bias",
    "recurrent_bias": "recurrent bias",
    "peephole": "peephole",
    "initial_hidden": "learned hidden state",
    "initial_cell": "learned cell state",
}

_GLOSSARY = (
    (
        "heat map",
        "Each cell is one weight, or the mean of a block where that is said: blue is negative, orange positive, as strong as the "
        "largest cell of that map. Magenta marks a block with a weight that is not finite.",
    ),
    ("histogram", "How many weights have which value; the middle is zero."),
    ("norm", "The root of the sum of the squares (Frobenius)."),
    (
        "spectral radius",
        "The largest magnitude of an eigenvalue of a gate's recurrent matrix, with the projection where there is "
        "one. Much above 1, states can grow; far below 1, they are forgotten soon. \u2248 is found by Arnoldi's "
        "method, without all eigenvalues.",
    ),
    ("bias", "The sum of a gate's biases and of what is added at run time. A forget gate near 1 or above remembers at first."),
    ("saturated units", "Units whose gate stays within 2 % of 0 or 1 for every input between -1 and 1, whatever the state."),
    ("dead units", "Units whose candidate has neither weights nor a bias."),
)


def anchor(number: int) -> str:
    """Return the key of a layer's part of the page."""
    return f"layer-{number}"


def to_page(
    title: str, lead: str, facts: Sequence[tuple[str, str]], *content: Markup | None, verdict: str = "", are_equal: bool = False
) -> str:
    """Return a page with a heading, what matters in one sentence, some figures, and the parts below.

    verdict   of two files, whose colour the heading has; "" for one file
    are_equal  whether nothing is drawn whose words need to be explained
    """
    heading = (el("span", SYMBOLS[verdict], class_="sign", aria_hidden="true"), verdict.capitalize()) if verdict else (title,)
    header = el(
        "header",
        el("p", "rnnconvert view", el("span", title) if verdict else None, class_="eyebrow"),
        el("h1", *heading, style="font-size:clamp(1.5rem,5vw,2.6rem)"),
        el("p", lead, class_="lead"),
        el("dl", [el("div", el("dt", name), el("dd", text)) for name, text in facts], class_="figures"),
        class_=f"verdict {TONES.get(verdict, 'neutral')}",
    )
    words = el("dl", [join(el("dt", word), el("dd", text)) for word, text in _GLOSSARY], class_="facts words", style="margin-top:.8rem")
    scale = el("p", "negative", el("i", aria_hidden="true"), "positive; no colour is zero", class_="scale")
    return page(title, header, el("main", *content, None if are_equal else section("words", "What is shown", scale, words)), style=STYLE)


def overview(rows: Sequence[tuple[int, Recurrent, Sequence[DirectionView]]]) -> Markup:
    """Return a table of all layers with what stands out, each with a link to its part."""
    heads = ["layer", "what it is", "weights", "spectral radius", "forget bias", "saturated", "dead"]
    cells = []
    for number, stack, ways in rows:
        largest = max((way.radius for way in ways if way.radius), key=lambda radius: radius.value, default=None)
        forget = [way.bias["f"] for way in ways if "f" in way.bias]
        stuck = sum(units.always_one + units.always_zero for way in ways for units in way.saturated.values())
        cells.append(
            [
                el("a", called(stack.name), href=f"#{anchor(number)}"),
                stack.describe(),
                f"{stack.parameters:,}",
                radius_text(largest),
                f"{sum(value[1] for value in forget) / len(forget):.2f}" if forget else "",
                f"{stuck:,}",
                f"{sum(way.dead for way in ways):,}",
            ]
        )
    return section("overview", "Recurrent layers", table("Recurrent layers", heads, cells, 5))


def layer(number: int, count: int, stack: Recurrent, ways: Sequence[DirectionView], note: str = "") -> Markup:
    """Return one layer: its diagram, its gates in numbers, its heat maps."""
    body = [diagram(stack), el("p", note, class_="note") if note else None]
    for way in ways:
        where = place(stack, way)
        body += [el("h4", where) if where else None, _gates(way, where), _others(way), _maps(way)]
    summary = el("summary", el("h3", called(stack.name)), el("span", f"{stack.describe()}, {stack.parameters:,} weights", class_="what"))
    return el("details", summary, el("div", body, class_="body"), class_="layer", id=anchor(number), open=count <= _FEW)


def place(stack: Recurrent, way: DirectionView) -> str:
    """Return where a direction stands in its stack; "" for the only one."""
    words = [f"layer {way.layer}"] if stack.num_layers > 1 else []
    if len(stack.layers[way.layer].directions) > 1:
        words.append(("forward", "backward")[way.number])
    return ", ".join(words)


def radius_text(radius: Radius | None) -> str:
    """Return a spectral radius for people; "" where it is unknown."""
    return "" if radius is None else f"{'' if radius.exact else chr(0x2248) + ' '}{radius.value:.3f}"


def _gates(way: DirectionView, where: str) -> Markup:
    parts = {part.key: part for part in way.parts}
    rows = []
    for gate in way.direction.cell.gates:
        weights, recurrent = parts.get(("input", gate)), parts.get(("recurrent", gate))
        low, mean, high = way.bias.get(gate, (math.nan,) * 3)
        units = way.saturated.get(gate)
        rows.append(
            [
                gate,
                _norm(weights),
                _norm(recurrent),
                radius_text(recurrent.radius if recurrent else None),
                "" if math.isnan(mean) else f"{mean:.3f} ({low:.2f} to {high:.2f})",
                "" if units is None else f"{units.always_one:,} high, {units.always_zero:,} low",
            ]
        )
    heads = ["gate", "norm of W", "norm of R", "spectral radius", "bias: mean (lowest to highest)", "saturated units"]
    return table(f"Gates{', ' if where else ''}{where}", heads, rows, 5)


def _norm(part: ArrayView | None) -> str:
    return "" if part is None else digits_of(part.norm, 4)


def _others(way: DirectionView) -> Markup | None:
    """Return the rows that the table of gates lacks: dead units, and weights that are not finite."""
    broken = [f"{_name(part)} has {part.not_finite:,} weights that are not finite" for part in way.parts if part.not_finite]
    dead = [f"{way.dead:,} of {way.direction.hidden_size:,} units are dead"] if way.dead else []
    texts = [*dead, *broken]
    return el("ul", [el("li", text) for text in texts]) if texts else None


def _name(part: ArrayView) -> str:
    kind, gate = part.key
    return _WORDS.get(kind, kind) + (f" of gate {gate}" if gate else "")


def _maps(way: DirectionView) -> Markup | None:
    gates = way.direction.cell.gates
    order = {gate: number for number, gate in enumerate(gates)}
    drawn = sorted((part for part in way.parts if part.heat), key=lambda part: order.get(part.key[1], len(gates)))
    return el("div", [figure(part, _name(part)) for part in drawn], class_="maps") if drawn else None


def figure(part: ArrayView, name: str) -> Markup:
    """Return the heat map and the histogram of one array."""
    size = " x ".join(f"{length:,}" for length in part.shape)
    caption = el("figcaption", el("strong", name), el("small", f"{size}, {_range(part)}"))
    picture = _image(part.heat, name) if part.heat is not None else None
    return el("figure", caption, picture, histogram(part.histogram, name), class_="map")


def _range(part: ArrayView) -> str:
    return f"{digits_of(part.low, 3)} to {digits_of(part.high, 3)}"


def _image(heat: Heatmap, name: str) -> Markup:
    rows, columns = heat.cells.shape
    tall, wide = heat.block
    each = "" if tall == wide == 1 else f"each cell the mean of up to {tall:,} x {wide:,} weights; "
    words = f"{each}scale: ±{digits_of(heat.largest, 3)}"
    image = el(
        "img",
        src=to_url(heat),
        alt=f"Heat map of {name}, {rows:,} rows and {columns:,} columns: {words}",
        loading="lazy",
        decoding="async",
        width=columns,
        height=rows,
        style=f"aspect-ratio:{columns}/{max(rows, columns // 8)};height:auto",
    )
    return join(image, el("small", words))


def histogram(bins: Histogram, name: str) -> Markup:
    """Return a histogram as bars, negative ones in the colour of negative weights."""
    top, middle = max(bins.counts) or 1, BINS // 2
    bars = {"minus": "", "zero": "", "plus": ""}
    for number, count in enumerate(bins.counts):
        if count:
            if number < middle:
                side = "minus"
            elif number == middle:
                side = "zero"
            else:
                side = "plus"
            bars[side] += f"M{number * 5} 40v-{max(40 * count / top, 0.5):.3g}h4V40z"
    some = f", one weight in {bins.every:,} counted" if bins.every > 1 else ""
    title = f"Histogram of {name} from -{digits_of(bins.largest, 3)} to {digits_of(bins.largest, 3)}{some}"
    paths = [el("path", d=shape, class_=side) for side, shape in bars.items() if shape]
    box = f"0 0 {BINS * 5} 40"
    drawing = el("svg", el("title", title), *paths, viewBox=box, role="img", preserveAspectRatio="none", class_="histogram")
    return join(drawing, el("small", some.removeprefix(", ")) if some else None)


def diagram(stack: Recurrent) -> Markup:
    """Return a drawing of the stack: what each layer reads and gives, and which way."""
    shown_layers = list(enumerate(stack.layers))
    cut = len(shown_layers) > _MOST_BOXES
    if cut:
        shown_layers = [*shown_layers[: _MOST_BOXES - 1], shown_layers[-1]]
    pieces: list[Markup] = [_text(8, 62, f"{stack.layers[0].directions[0].input_size:,} inputs", "small")]
    x = 96
    for position, (index, shown_layer) in enumerate(shown_layers):
        pieces += _arrow(x - 20, x)
        if cut and position == len(shown_layers) - 1:
            pieces += [_text(x + 8, 62, f"... {len(stack.layers) - len(shown_layers):,} more"), *_arrow(x + 88, x + 108)]
            x += 108
        tall = 44 if len(shown_layer.directions) == 1 else 92
        top = 58 - tall / 2
        for number, direction in enumerate(shown_layer.directions):
            pieces.append(el("rect", x=x, y=top + number * 48, width=150, height=44, rx=6))
            pieces.append(_text(x + 10, top + number * 48 + 18, _box(index, direction)))
            turn = "\u2190 from the end" if direction.reverse else "\u2192 from the start"
            pieces.append(_text(x + 10, top + number * 48 + 35, turn, "small"))
        x += 150
        pieces += _arrow(x, x + 20)
        joined = f" {shown_layer.merge}" if len(shown_layer.directions) > 1 else ""
        pieces.append(_text(x + 24, 62, f"{shown_layer.output_size:,}{joined}", "small"))
        x += 106
    title = f"{stack.describe()}: {stack.num_layers:,} layers in a row" if stack.num_layers > 1 else stack.describe()
    drawing = el("svg", el("title", title), *pieces, viewBox=f"0 0 {x} 116", width=x, height=116, role="img", class_="diagram")
    return scrolling(drawing, "Diagram") if x > 320 else drawing


_MOST_BOXES = 8


def _box(index: int, direction: Direction) -> str:
    units = f"{direction.hidden_size:,}"
    size = f"{units} to {direction.output_size:,}" if direction.projection_size else units
    return f"{index}: {direction.cell.kind.upper()} {size}"


def _text(x: float, y: float, text: str, kind: str | None = None) -> Markup:
    return el("text", text, x=x, y=y, class_=kind)


def _arrow(start: float, end: float) -> Iterator[Markup]:
    yield el("path", d=f"M{start} 58H{end}M{end - 5} 54l5 4l-5 4")
