"""A forest's trees to look at: as indented text for a terminal, and as an SVG for a browser or a report.

Names come from files, so whatever a terminal or a browser could take for an order is made visible as what it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from unicodedata import combining, east_asian_width

import numpy as np
import numpy.typing as npt

from colonnade.boosting.forest import Forest
from colonnade.boosting.importance import check_features
from colonnade.errors import OptionError

Mask = npt.NDArray[np.uint64]
Condition = Callable[[int, Mask], str]

# In units of the picture. A letter of a monospaced font of 12 is 7.2 wide; a little more leaves room for other fonts.
_LETTER, _SMALL_LETTER, _PAD, _LONGEST = 7.4, 6.2, 10.0, 44
_ROW, _INNER_HEIGHT, _LEAF_HEIGHT, _GAP, _MARGIN, _HEADING = 34.0, 52.0, 26.0, 64.0, 20.0, 30.0
# Okabe and Ito's colours, which people with any vision can tell apart; black is left out, as it vanishes in the dark.
_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9")
_STYLE = """
svg{--page:#ffffff;--box:#f6f7f9;--ink:#1b1f24;--quiet:#59636e;--line:#8b949e}
@media (prefers-color-scheme:dark){svg{--page:#14171b;--box:#22272e;--ink:#e8ebee;--quiet:#a5afba;--line:#768390}}
text{font:12px ui-monospace,Menlo,Consolas,monospace;fill:#1b1f24;fill:var(--ink)}
.quiet{font-size:10px;fill:#59636e;fill:var(--quiet)}
.end{text-anchor:end}
.heading{font-weight:bold}
.page{fill:#ffffff;fill:var(--page)}
.box{fill:#f6f7f9;fill:var(--box);stroke:#8b949e;stroke:var(--line)}
.edge{fill:none;stroke:#8b949e;stroke:var(--line)}
"""


@dataclass(frozen=True)
class _Picture:
    """What is drawn: a forest, and what the reader may see of its features."""

    forest: Forest
    owners: Sequence[str]
    names: Sequence[str]
    condition: Condition

    def question(self, node: int) -> str:
        """What a node asks; a condition that names the feature itself is not given the name once more."""
        feature = int(self.forest.feature[node])
        said, name = (
            visible(one) for one in (self.condition(feature, self.forest.goes_left[node]), self.names[feature])
        )
        return said if name in said else f"{name}: {said}"

    def owner(self, node: int) -> str:
        return visible(self.owners[self.forest.feature[node]])

    def heading(self, tree: int) -> str:
        several = f", score {self.forest.outputs[tree] + 1}" if len(self.forest.base) > 1 else ""
        return f"tree {tree + 1} of {len(self.forest.outputs)}{several}"

    def rows(self, node: int) -> str:
        count = int(self.forest.count[node])
        return f"{count:,} row" if count == 1 else f"{count:,} rows"

    def children(self, node: int) -> tuple[tuple[str, int], ...]:
        if self.forest.feature[node] < 0:
            return ()
        return ("yes", int(self.forest.left[node])), ("no", int(self.forest.right[node]))


def visible(text: str) -> str:
    """A text in which nothing is hidden: escape sequences, line ends and marks of direction are spelled out."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text)


def trees_as_text(
    forest: Forest,
    owners: Sequence[str],
    names: Sequence[str],
    condition: Condition,
    trees: Sequence[int] | None = None,
) -> str:
    """Write trees as indented lines, each inner node with its party and question, each leaf with what it adds.

    Parameters
    ----------
    forest : Forest
        As it was trained.
    owners, names : sequence of str
        The party of each feature, and its name as the reader may see it.
    condition : callable
        Takes a feature's number and the 256 bits of cells that go left, four words of uint64, and says in words which
        rows those are, as in "age <= 34.5 or missing".
    trees : sequence of int, optional
        Which trees, counted from 0; all of them by default.
    """
    picture = _picture(forest, owners, names, condition)
    pieces = []
    for tree in _chosen(forest, trees):
        lines = [picture.heading(tree), *_lines(picture, int(forest.starts[tree]), "", "")]
        pieces.append("".join(f"{line}\n" for line in lines))
    return "\n".join(pieces)


def trees_as_svg(
    forest: Forest,
    owners: Sequence[str],
    names: Sequence[str],
    condition: Condition,
    trees: Sequence[int] | None = None,
) -> str:
    """Draw trees one below the other, from their roots on the left to their leaves on the right.

    The picture is one SVG that needs nothing else: no script, no font, no address. It follows the reader's choice of
    light or dark where the viewer knows it, and is light with a background of its own where it doesn't. Parties have
    colours and are named in every node, and a line is the thicker the more rows of training went along it. A question
    that is too long for its box is there in full when it is pointed at.

    Parameters are those of `trees_as_text`.
    """
    picture = _picture(forest, owners, names, condition)
    parties = dict.fromkeys(owners)
    colours = {visible(party): _COLOURS[at % len(_COLOURS)] for at, party in enumerate(parties)}
    body, width, height = _legend(colours)
    for tree in _chosen(forest, trees):
        drawing = _TreeDrawing(picture, colours, int(forest.starts[tree]))
        body.append(_text(_MARGIN, height + 12.0, picture.heading(tree), "heading"))
        body.append(f'<g transform="translate({_MARGIN:g} {height + _HEADING:g})">')
        body += [*drawing.edges, *drawing.boxes, "</g>"]
        width, height = max(width, drawing.width + 2.0 * _MARGIN), height + _HEADING + drawing.height + _MARGIN
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img"><title>Trees of a forest</title>'
    page = '<rect class="page" width="100%" height="100%"/>'
    return "\n".join([head, f"<style>{_STYLE}</style>", page, *body, "</svg>\n"])


def _picture(forest: Forest, owners: Sequence[str], names: Sequence[str], condition: Condition) -> _Picture:
    check_features(forest, len(owners), "party")
    check_features(forest, len(names), "name")
    return _Picture(forest, owners, names, condition)


def _chosen(forest: Forest, trees: Sequence[int] | None) -> Sequence[int]:
    count = len(forest.outputs)
    for tree in trees or ():
        if not 0 <= tree < count:
            raise OptionError(f"there is no tree {tree}: the forest has {count}, counted from 0; choose among them")
    return range(count) if trees is None else trees


# -- text --------------------------------------------------------------------------------------------------------------


def _lines(picture: _Picture, node: int, before: str, below: str) -> Iterator[str]:
    """A node's line after `before`, and those of its children after `below`."""
    forest, children = picture.forest, picture.children(node)
    if not children:
        yield f"{before}{forest.value[node]:+.6g}  ({picture.rows(node)})"
        return
    said = f"[{picture.owner(node)}] {picture.question(node)}"
    yield f"{before}{said}  (gain {forest.gain[node]:.6g}, {picture.rows(node)})"
    for (answer, child), (corner, rest) in zip(children, (("├─ ", "│  "), ("└─ ", "   ")), strict=True):
        yield from _lines(picture, child, f"{below}{corner}{answer}: ", f"{below}{rest}")


# -- SVG ---------------------------------------------------------------------------------------------------------------


class _TreeDrawing:
    """Boxes and lines of one tree: every level is a column, and every leaf has a row of its own."""

    def __init__(self, picture: _Picture, colours: dict[str, str], root: int) -> None:
        self.edges: list[str] = []
        self.boxes: list[str] = []
        self._picture, self._colours, self._leaves = picture, colours, 0
        self._whole = max(int(picture.forest.count[root]), 1)
        self._widths: list[float] = []  # of the levels, each as wide as its widest box
        self._measure(root, 0)
        self._place(root, 0)
        self.width = sum(self._widths) + _GAP * (len(self._widths) - 1)
        self.height = max(self._leaves * _ROW, _INNER_HEIGHT)

    def _measure(self, node: int, level: int) -> None:
        if level == len(self._widths):
            self._widths.append(0.0)
        self._widths[level] = max(self._widths[level], self._width(node))
        for _, child in self._picture.children(node):
            self._measure(child, level + 1)

    def _width(self, node: int) -> float:
        quiet = [_SMALL_LETTER * _length(one) for one in self._quiet(node)]
        said = _LETTER * _length(self._said(node))
        return 2.0 * _PAD + (max(said, *quiet) if self._picture.children(node) else said + _PAD + quiet[0])

    def _said(self, node: int) -> str:
        value = self._picture.forest.value[node]
        return _short(self._picture.question(node)) if self._picture.children(node) else f"{value:+.4g}"

    def _quiet(self, node: int) -> tuple[str, ...]:
        """The rows that came to a node; of an inner one its party too."""
        forest, rows = self._picture.forest, self._picture.rows(node)
        if not self._picture.children(node):
            return (rows,)
        return _short(self._picture.owner(node)), f"gain {forest.gain[node]:.4g}, {rows}"

    def _place(self, node: int, level: int) -> float:
        """Draw a node and all below it; the height of its middle, which is between its children's."""
        x, width = sum(self._widths[:level]) + _GAP * level, self._width(node)
        children = self._picture.children(node)
        if not children:
            self._leaves += 1
            middle = _ROW * (self._leaves - 0.5)
            self.boxes.append(_box(x, middle, width, _LEAF_HEIGHT, _LEAF_HEIGHT / 2.0))
            self.boxes.append(_text(x + _PAD, middle + 4.0, self._said(node)))
            self.boxes.append(_text(x + width - _PAD, middle + 4.0, self._quiet(node)[0], "quiet end"))
            return middle
        heights = [self._place(child, level + 1) for _, child in children]
        middle = sum(heights) / 2.0
        after = x + self._widths[level] + _GAP
        for (answer, child), height in zip(children, heights, strict=True):
            thickness = 1.0 + 5.0 * int(self._picture.forest.count[child]) / self._whole
            bend = f"M{x + width:.1f} {middle:.1f}H{after - _GAP:.1f}C{after - _GAP / 2.0:.1f} {middle:.1f} "
            bend += f"{after - _GAP / 2.0:.1f} {height:.1f} {after:.1f} {height:.1f}"
            self.edges.append(f'<path class="edge" stroke-width="{thickness:.1f}" d="{bend}"/>')
            # On the side that the line does not come from.
            beside = height - 6.0 if height < middle else height + 13.0
            self.edges.append(_text(after - 4.0, beside, answer, "quiet end"))
        party, note = self._quiet(node)
        colour, top = self._colours[self._picture.owner(node)], middle - _INNER_HEIGHT / 2.0
        self.boxes.append(
            f"<g><title>{escape(self._picture.owner(node))}: {escape(self._picture.question(node))}</title>"
        )
        self.boxes.append(_box(x, middle, width, _INNER_HEIGHT, 4.0))
        self.boxes.append(f'<rect x="{x:.1f}" y="{top:.1f}" width="5" height="{_INNER_HEIGHT:g}" fill="{colour}"/>')
        lines = ((party, 15.0, "quiet"), (self._said(node), 30.0, ""), (note, 45.0, "quiet"))
        self.boxes += [_text(x + _PAD, top + down, text, kind) for text, down, kind in lines]
        self.boxes.append("</g>")
        return middle


def _legend(colours: dict[str, str]) -> tuple[list[str], float, float]:
    """A square of each party's colour with its name, and how wide and high they are."""
    body, x = [], _MARGIN
    for party, colour in colours.items():
        body.append(f'<rect x="{x:.1f}" y="{_MARGIN:g}" width="12" height="12" fill="{colour}"/>')
        body.append(_text(x + 18.0, _MARGIN + 10.0, _short(party)))
        x += 18.0 + _LETTER * _length(_short(party)) + _MARGIN
    return body, x, 2.0 * _MARGIN + 12.0


def _box(x: float, middle: float, width: float, height: float, radius: float) -> str:
    size = f'width="{width:.1f}" height="{height:g}" rx="{radius:g}"'
    return f'<rect class="box" x="{x:.1f}" y="{middle - height / 2.0:.1f}" {size}/>'


def _text(x: float, y: float, text: str, kind: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}">{escape(text)}</text>'


def _length(text: str) -> int:
    """How many letters wide a text is: Chinese, Japanese and Korean ones take two, and accents of their own none."""
    return sum(0 if combining(one) else 2 if east_asian_width(one) in "WF" else 1 for one in text)


def _short(text: str) -> str:
    """A text as it fits into a box, without its middle: names begin differently, and conditions end differently."""
    if _length(text) <= _LONGEST:
        return text
    start, end = text, text
    while _length(start) > _LONGEST // 2:
        start = start[:-1]
    while _length(end) > _LONGEST // 2 - 1:
        end = end[1:]
    return f"{start}…{end}"
