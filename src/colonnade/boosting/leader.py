"""The label holder in the training of trees: it grows every tree itself, on its own cells and on what partners opened.

Labels, derivatives, nodes and leaves never leave it in the clear. `algorithms.boosted` has the order of the steps, and
`boosting.partner` the other side of each.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.boosting.candidates import agreeing
from colonnade.boosting.cell_table import CellTable
from colonnade.boosting.conditions import cells_of, model_ranges
from colonnade.boosting.derivatives import start_of
from colonnade.boosting.forest import Forest, ForestBuilder, TreeNodes
from colonnade.boosting.growing import GrowingTree, Growth, TreeGrower
from colonnade.boosting.options import TreeOptions
from colonnade.boosting.partner import END, KEEP, KEPT, MOST_TREES, ORDER
from colonnade.boosting.partnership import Partnership
from colonnade.boosting.questions import (
    LEAST_GROUP,
    LEAST_SHARE,
    Questions,
    questions_next,
    steps_of,
)  # fmt: skip
from colonnade.boosting.ranges import Codes, ColumnSizes, Mask
from colonnade.boosting.rounds import BoostingRounds, TreeLabels
from colonnade.boosting.row_cells import CellsElsewhere
from colonnade.engine.kept import Keeper, common_version
from colonnade.errors import OptionError, ProtocolError
from colonnade.objective.further_losses import Quantile
from colonnade.runtimes.net import Net

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[Any]


class TreeLeader:
    """The label holder in one training run.

    Parameters
    ----------
    net
        This party's side of the network.
    options
        What the model is.
    seed
        The seed of the rows and columns that are drawn for each tree.
    labels
        Its labels, the loss, and the weights of rows; for training rows and for those held out.
    sizes, cells
        What there is to know of its own columns, and the cell of every row in each, training rows first.
    earlier
        The forest that training goes on from, or None; its ranges of partners' columns are open from the start.
    keeper
        Where this party keeps its progress, if the run shall be able to go on after a break; then all have one.
    elsewhere
        Who holds cells by row and adds up histograms; None is that it does so itself.
    """

    def __init__(
        self,
        net: Net,
        options: TreeOptions,
        seed: int,
        labels: TreeLabels,
        sizes: ColumnSizes,
        cells: Codes,
        earlier: Forest | None = None,
        keeper: Keeper | None = None,
        elsewhere: CellsElsewhere | None = None,
    ) -> None:
        self.net, self.options, self.seed, self.labels, self.keeper = net, options, seed, labels, keeper
        self.elsewhere = elsewhere
        self.sizes, self.cells, self.earlier = sizes, cells, earlier
        self.rows = labels.rows
        self.rounds = BoostingRounds(net, labels, options)
        self.questions: Questions | None = None
        self.partners: list[Partnership] = []
        self.features = sizes.columns
        self.done = self._to_be_kept = 0

    # -- before the first tree -----------------------------------------------------------------------------------------

    async def agree(self, most: int) -> None:
        """Hear from all partners how many cells each of their columns has; `most` ranges of each may be opened."""
        apart = self.cells.shape[1] - self.rows
        for name in self.net.names:
            if name != self.net.me:
                one = await Partnership.hear(self.net, name, self.options.bins, most, self.rows, apart)
                one.offset = self.features
                self.features += one.sizes.columns
                self.partners.append(one)

    async def hear_opened(self) -> None:
        """Take the ranges of partners' columns that the earlier model uses."""
        if self.earlier is not None:
            for one in self.partners:
                await one.hear_opened(used_ranges(self.earlier, one.offset, one.sizes))

    async def prepare(self, noise: tuple[float, float]) -> None:
        """Get ready to ask partners about sums over their cells."""
        self.questions = Questions(self.net, self.partners, self.rows, self.seed, noise)
        await self.questions.prepare()

    def begin(self) -> None:
        """Lay out all cells that are known, and start every score where the loss says, or at an earlier model's."""
        told = (self.sizes, *(one.sizes for one in self.partners))
        every = np.concatenate([self.cells, *(one.codes for one in self.partners)])
        counts, missing, categorical, signs = (
            [value for sizes in told for value in getattr(sizes, name)]
            for name in ("counts", "missing", "categorical", "monotone")
        )
        if any(signs) and (self.labels.shown is not None or isinstance(self.labels.loss, Quantile)):
            what = "label_epsilon" if self.labels.shown is not None else "the quantile loss"
            raise OptionError(f"monotone columns need leaves as splits leave them, and {what} fits them anew; drop one")
        fixed = np.arange(self.features) < (self.sizes.columns if self.questions is not None else self.features)
        known = np.ascontiguousarray(every[:, : self.rows])
        self.table = CellTable(known, counts, missing, categorical, fixed, self.elsewhere)
        self._held_out: Codes = np.ascontiguousarray(every[:, self.rows :])
        options = self.options
        growth = Growth(
            depth=options.depth, leaves=options.leaves, l2=options.l2, gamma=options.min_gain,
            min_child_weight=options.min_child_weight, monotone=np.array(signs, np.int8),
        )  # fmt: skip
        self.grower = TreeGrower(self.table, growth)
        labels, earlier = self.labels, self.earlier
        base = start_of(labels.loss, labels.y, labels.weights, labels.outputs) if earlier is None else earlier.base
        self.builder = ForestBuilder(base)
        if earlier is not None:
            self._go_on_from(earlier)
        self.rounds.begin(base, self.table.by_column, self._held_out, earlier)

    def _go_on_from(self, earlier: Forest) -> None:
        self.done = earlier.trees // len(earlier.base)
        for nodes, output in trees_of(earlier):
            self.builder.append(nodes, output=output)

    async def resume(self) -> None:
        """Go back to the last tree after which all parties have kept their progress."""
        if self.keeper is None:
            return
        version = await common_version(self.net, self.keeper)
        self.keeper.forget(version)
        if version:
            self._restore(version, self.keeper.load(version))
        for one in self.partners if self.questions is not None else ():
            await one.hear_record()

    def _restore(self, version: int, state: Any) -> None:
        arrays, scores, (asked, *codes), records = state
        if self.questions is not None:
            self.questions.asked = asked
        kept = Forest.from_arrays(dict(arrays), self.features)
        for one, (first, known) in zip(self.partners, codes, strict=True):
            one.ranges.thaw(first)
            one.codes = np.array(known)
            for column in range(one.sizes.columns):
                if self.questions is not None and one.ranges.opened(column):
                    self._take_over(one, column)
        self.builder = ForestBuilder(kept.base)
        self._go_on_from(kept)
        self.net.report(("resumed", version))
        self.rounds.thaw(scores, records)
        self.done = version

    async def keep(self) -> None:
        """Keep all that the next tree depends on, here and at every partner."""
        if self.keeper is None or self.done % self.keeper.every:
            return
        await self._all_have_kept()
        for one in self.partners:
            await self.net.send(one.name, ORDER, (KEEP, self.done))
        self._to_be_kept = self.done
        forest = tuple(self.builder.forest().to_arrays().items())
        asked = 0 if self.questions is None else self.questions.asked
        codes = (asked, *((one.ranges.freeze(), one.codes) for one in self.partners))
        self.keeper.save(self.done, (forest, *self.rounds.freeze(codes)))

    async def _all_have_kept(self) -> None:
        """Wait until every partner has kept what it was told to: nobody may be ahead by more than one version.

        Between two trees nothing else waits for a partner, and one that is gone would not be noticed.
        """
        for one in self.partners if self.keeper is not None and self._to_be_kept else ():
            if await self.net.recv(one.name, KEPT) != (self._to_be_kept,):
                raise ProtocolError(f"party {one.name!r} must tell that it has kept its progress at step {KEPT!r}")

    # -- a round -------------------------------------------------------------------------------------------------------

    @property
    def goes_on(self) -> bool:
        """Whether another round shall follow."""
        return self.done < self.options.trees and not self.rounds.stopped

    async def round(self) -> None:
        """Grow one tree for each score, and judge the model."""
        rng = np.random.default_rng([self.seed, self.done])
        rows, allowed = self._drawn(rng)
        g, h = self.rounds.slopes()
        grown = []
        for output in range(self.rounds.outputs):
            v, w = np.ascontiguousarray(g[:, output]), np.ascontiguousarray(h[:, output])
            grown.append(await self._tree(v, w, rows, allowed, self._steps(output)))
        for output, (nodes, leaf) in enumerate(grown):
            final = self.rounds.revalued(nodes, leaf, rows, output, self.table.by_column)
            values = self.builder.append(final, output=output, learning_rate=self.options.learning_rate)
            self.rounds.add(final, values, leaf, rows, output, self.table.by_column, self._held_out)
        self.done += 1
        self.rounds.judge(self.done, len(self.builder))
        await self.keep()
        if self.questions is not None and self.goes_on:
            await self.questions.renew(questions_next(self.done, self.options.trees, self.rounds.outputs))

    def _drawn(self, rng: np.random.Generator) -> tuple[Rows | None, Mask | None]:
        """Draw the rows and columns of a tree."""
        rows = allowed = None
        if self.options.rows < 1:
            count = max(1, round(self.options.rows * self.rows))
            rows = np.sort(rng.permutation(self.rows)[:count]).astype(np.int32)
        if self.options.columns < 1:
            allowed = np.zeros(self.features, np.bool_)
            allowed[rng.permutation(self.features)[: max(1, round(self.options.columns * self.features))]] = True
        return rows, allowed

    def _steps(self, output: int) -> tuple[int, ...]:
        """Return how many sums the next tree of a score asks for at each of its first steps."""
        return () if self.questions is None else steps_of(self.done, output, self.rounds.outputs)

    async def _tree(
        self, g: Floats, h: Floats, rows: Rows | None, allowed: Mask | None, asks: tuple[int, ...]
    ) -> tuple[TreeNodes, Rows]:
        """Grow one tree, level by level; where it asks, partners' columns take part before a level is divided."""
        await self.net.work(self.rows * self.table.slots * self.options.depth)
        tree = await self.net.in_thread(self.grower.begin, g, h, rows, allowed)
        step, growing, known = 0, True, dict[int, Any]()
        while growing or step < len(asks):
            if step < len(asks):
                await self._consult(tree, asks[step : step + 2], known, (g, h), allowed)
            growing = growing and await self.net.in_thread(tree.advance)
            step += 1
        nodes, leaf = tree.finish()
        return replace(nodes, goes_left=self._whole(nodes)), leaf

    async def _consult(
        self,
        tree: GrowingTree,
        counts: tuple[int, ...],
        known: dict[int, Any],
        slopes: tuple[Floats, Floats],
        allowed: Mask | None,
    ) -> None:
        """Ask partners about the open nodes, and have those cuts opened that gain more than all that is known.

        `counts` says for how many sums, and behind it for how many at the next step.
        """
        questions, options, count = self.questions, self.options, counts[0]
        if questions is None:
            return
        nodes = {node.number: node for node in tree.open}
        least = max(LEAST_GROUP, LEAST_SHARE * self.rows)
        wanted = sorted(
            (one for one in nodes.values() if one.number not in known and len(one.rows) >= least),
            key=lambda one: -len(one.rows),
        )[:count]
        groups: list[Rows | None] = [one.rows for one in wanted]
        groups += [None] * (count - len(wanted))
        answers = await questions.ask(groups, *slopes, ahead=sum(counts[1:]))
        for node, sums in zip(wanted, answers, strict=False):
            known[node.number] = sums
        for node, other in combinations(wanted, 2):
            if node.parent == other.parent and node.parent in known:
                both = {
                    name: agreeing(sums, known[node.number][name], known[other.number][name])
                    for name, sums in known[node.parent].items()
                }
                known[node.number] = {name: pair[0] for name, pair in both.items()}
                known[other.number] = {name: pair[1] for name, pair in both.items()}
        wishes = []
        for number, node in nodes.items():
            if number in known and len(node.rows) >= least:
                best = questions.worthwhile(known[number], options.l2, options.min_child_weight, allowed)
                if best is not None and best[1].gain > max(node.gain, options.min_gain):
                    wishes.append((best[1].gain - node.gain, *best))
        await self._open(tree, sorted(wishes, key=lambda wish: -wish[0]))

    async def _open(self, tree: GrowingTree, wishes: list[tuple[float, str, Any]]) -> None:
        """Have cuts opened, the most useful first, as far as partners allow; the tree then looks at them exactly."""
        changed = []
        for one in self.partners:
            chosen: list[tuple[int, Mask]] = []
            trial = one.ranges.copy()
            for _, name, cut in wishes:
                if name == one.name and trial.fits(cut.column, cut.cut):
                    trial.open(cut.column, cut.cut)
                    chosen.append((cut.column, cut.cut))
            await one.open(chosen)
            for column in dict.fromkeys(column for column, _ in chosen):
                self._take_over(one, column)
                changed.append(one.offset + column)
        if changed:
            await self.net.in_thread(tree.refresh, changed)

    def _take_over(self, partner: Partnership, column: int) -> None:
        """Bring what is known of a partner's column up to date in the tables that trees are grown on."""
        feature, codes = partner.offset + column, partner.codes[column]
        self.table.replace(feature, codes[: self.rows])
        self._held_out[feature] = codes[self.rows :]

    def _whole(self, nodes: TreeNodes) -> npt.NDArray[np.uint64]:
        """Return the sides of splits of partners' columns in whole ranges: later cuts must not change them."""
        found = nodes.goes_left.copy()
        for one in self.partners:
            for place in np.flatnonzero(
                (nodes.feature >= one.offset) & (nodes.feature < one.offset + one.sizes.columns)
            ):
                column = int(nodes.feature[place]) - one.offset
                mask = cells_of(found[place], one.sizes.counts[column])
                found[place] = repacked(one.ranges.whole(column, mask))
        return found

    # -- the end -------------------------------------------------------------------------------------------------------

    def _report_held_out(self) -> None:
        """Tell this party's own starter the scores of held-out rows by the trees that are kept."""
        if self.rounds.z_held is not None:
            whole = self.rounds.best_trees == len(self.builder)
            z = self.rounds.z_held if whole else self.forest.scores(self._held_out)
            self.net.report(("held-out rows", np.arange(len(z)), z[:, 0] if self.rounds.outputs == 1 else z))

    async def finish(self) -> None:
        """Make a forest of the best trees, and tell partners that training is over and which ranges the model uses."""
        self.forest = self.builder.forest(self.rounds.best_trees)
        self._report_held_out()
        if self.questions is not None:
            await self.questions.close()
        await self._all_have_kept()
        for one in self.partners:
            await self.net.send(one.name, ORDER, (END, 0))
            await one.tell_model(used_ranges(self.forest, one.offset, one.sizes))
        self._to_be_kept = MOST_TREES  # the model
        await self._all_have_kept()


def repacked(mask: Mask) -> npt.NDArray[np.uint64]:
    """Return booleans as 256 bits in four words, the lowest first."""
    bits = np.zeros(256, np.uint8)
    bits[: len(mask)] = mask
    return np.packbits(bits, bitorder="little").view("<u8").astype(np.uint64)


def used_ranges(forest: Forest, offset: int, sizes: ColumnSizes) -> list[Codes | None]:
    """Return, for each of a partner's columns, the first cell of every cell's range in the model; None if unused."""
    return [model_ranges(forest, offset + column, sizes.counts[column]) for column in range(sizes.columns)]


def trees_of(forest: Forest) -> list[tuple[TreeNodes, int]]:
    """Return every tree of a forest by itself, with the score that it adds to."""
    found = []
    for tree in range(forest.trees):
        here = slice(int(forest.starts[tree]), int(forest.starts[tree + 1]))
        own = {
            name: getattr(forest, name)[here] for name in ("feature", "goes_left", "value", "gain", "cover", "count")
        }
        for name in ("left", "right"):
            child = getattr(forest, name)[here]
            own[name] = np.where(child < 0, -1, child - here.start).astype(np.int32)
        found.append((TreeNodes(**own), int(forest.outputs[tree])))
    return found
