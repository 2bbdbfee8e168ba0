"""What a forest says: Shapley values against their definition, the paper and xgboost; importances; drawings."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import combinations
from math import factorial
from xml.etree import ElementTree

import numpy as np
import pytest

from colonnade.boosting.drawing import trees_as_svg, trees_as_text
from colonnade.boosting.forest import Forest
from colonnade.boosting.importance import permutation_importance, split_importance
from colonnade.boosting.shapley import shapley_values
from colonnade.compiling.compiled import Compiled
from colonnade.compiling.compiler import dispatcher
from colonnade.errors import DataError, OptionError
from colonnade.kernels import shapley as kernels

SVG = "{http://www.w3.org/2000/svg}"


# -- forests by hand: a leaf is (value, cover), an inner node (feature, cells that go left, left, right) ---------------


def forest_of(*trees, outputs=None, base=(0.0,)):
    nodes, starts = [], [0]

    def add(tree):
        at = len(nodes)
        nodes.append(None)
        if len(tree) == 2:
            nodes[at] = (-1, (), -1, -1, tree[0], 0.0, tree[1])
            return at
        left, right = add(tree[2]), add(tree[3])
        cover = nodes[left][6] + nodes[right][6]
        nodes[at] = (tree[0], tree[1], left, right, 0.0, 1.0 + at, cover)
        return at

    for tree in trees:
        add(tree)
        starts.append(len(nodes))
    feature, cells, left, right, value, gain, cover = zip(*nodes, strict=True)
    goes_left = np.zeros((len(nodes), 4), np.uint64)
    for node, chosen in enumerate(cells):
        for cell in chosen:
            goes_left[node, cell // 64] |= np.uint64(1) << np.uint64(cell % 64)
    parts = {
        "starts": np.array(starts, np.int64),
        "outputs": np.array(outputs if outputs is not None else [0] * len(trees), np.int32),
        "feature": np.array(feature, np.int32),
        "goes_left": goes_left,
        "left": np.array(left, np.int32),
        "right": np.array(right, np.int32),
        "value": np.array(value),
        "gain": np.array(gain),
        "cover": np.array(cover),
        "count": np.array(cover).astype(np.int64),
        "base": np.array(base),
    }
    return Forest.from_arrays(parts)


def drawn_tree(rng, features, depth, nothing=0.0):
    """A random tree over cells 0, 63, 64 and 255; nothing: the part of leaves where no row of training was."""
    if depth == 0 or rng.random() < 0.15:
        return float(rng.standard_normal()), 0.0 if rng.random() < nothing else float(rng.integers(1, 50))
    cells = [cell for cell in (0, 63, 64, 255) if rng.random() < 0.5]
    children = (drawn_tree(rng, features, depth - 1, nothing) for _ in range(2))
    return (int(rng.integers(features)), cells, *children)


def drawn_cells(rng, features, rows):
    return rng.choice(np.array([0, 63, 64, 255], np.uint8), (features, rows))


def goes_left(forest, node, cell):
    return bool(int(forest.goes_left[node, cell // 64]) >> (cell % 64) & 1)


def parts_of(forest, node):
    """In which proportion rows go left and right."""
    left, right = forest.cover[forest.left[node]], forest.cover[forest.right[node]]
    return (left / (left + right), right / (left + right)) if left + right else (0.5, 0.5)


# -- Shapley values ----------------------------------------------------------------------------------------------------


def value_of(forest, node, known, row):
    """The mean score of a row of which some features are known, as the definition has it."""
    if (feature := forest.feature[node]) < 0:
        return forest.value[node]
    left, right = forest.left[node], forest.right[node]
    if feature in known:
        return value_of(forest, left if goes_left(forest, node, int(row[feature])) else right, known, row)
    a, b = parts_of(forest, node)
    return a * value_of(forest, left, known, row) + b * value_of(forest, right, known, row)


def by_definition(forest, cells):
    """Shapley values (n, features, outputs) and expected scores, over all sets of features."""
    features, n = cells.shape
    values, expected = np.zeros((n, features, len(forest.base))), forest.base.copy()
    for root, output in zip(forest.starts[:-1], forest.outputs, strict=True):
        expected[output] += value_of(forest, root, (), ())
        for i, row in enumerate(cells.T):
            for size in range(features):
                weight = factorial(size) * factorial(features - size - 1) / factorial(features)
                for feature in range(features):
                    for known in combinations([one for one in range(features) if one != feature], size):
                        more = value_of(forest, root, (*known, feature), row) - value_of(forest, root, known, row)
                        values[i, feature, output] += weight * more
    return values, expected


def by_the_paper(forest, root, row):
    """Lundberg, Erion and Lee's Algorithm 2 in their own steps, for one tree and one row."""
    phi = np.zeros(len(row))

    def extend(m, zero, one, feature):
        m = [*(list(part) for part in m), [feature, zero, one, 1.0 if not m else 0.0]]
        for i in range(len(m) - 2, -1, -1):
            m[i + 1][3] += one * m[i][3] * (i + 1) / len(m)
            m[i][3] = zero * m[i][3] * (len(m) - 1 - i) / len(m)
        return m

    def unwind(m, i):
        length, (_, zero, one, _) = len(m), m[i]
        m, n = [list(part) for part in m], m[-1][3]
        for j in range(length - 2, -1, -1):
            if one:
                kept = m[j][3]
                m[j][3] = n * length / ((j + 1) * one)
                n = kept - m[j][3] * zero * (length - 1 - j) / length
            else:
                m[j][3] = m[j][3] * length / (zero * (length - 1 - j))
        for j in range(i, length - 1):
            m[j][:3] = m[j + 1][:3]
        return m[:-1]

    def recurse(node, m, zero, one, feature):
        m = extend(m, zero, one, feature)
        if (asked := forest.feature[node]) < 0:
            for i in range(1, len(m)):
                w = sum(part[3] for part in unwind(m, i))
                phi[m[i][0]] += w * (m[i][2] - m[i][1]) * forest.value[node]
            return
        zero, one = 1.0, 1.0
        for i in range(1, len(m)):
            if m[i][0] == asked:
                _, zero, one, _ = m[i]
                m = unwind(m, i)
                break
        side = goes_left(forest, node, int(row[asked]))
        a, b = parts_of(forest, node)
        recurse(forest.left[node], m, zero * a, one * side, asked)
        recurse(forest.right[node], m, zero * b, one * (not side), asked)

    recurse(root, [], 1.0, 1.0, -1)
    return phi


@pytest.fixture(params=["kept", "numba"])
def path(request):
    """Kernels twice: as code that is kept, and as numba has it."""
    with pytest.MonkeyPatch.context() as patch:
        for kernel in vars(kernels).values() if request.param == "numba" else ():
            if isinstance(kernel, Compiled):
                patch.setattr(kernel, "_call", dispatcher(kernel))
        yield


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("seed", range(6))
def test_shapley_values_are_those_of_the_definition(seed):
    """Paths that ask about a feature again, subsets of cells, several scores, and leaves that no row came to."""
    rng = np.random.default_rng(seed)
    nothing, features = 0.4 * (seed % 2), 3 + seed % 3
    trees = [drawn_tree(rng, features, 2 + seed % 4, nothing) for _ in range(4)]
    forest = forest_of(*trees, outputs=[0, 1, 1, 0], base=(0.5, -2.0))
    cells = drawn_cells(rng, features, 8)
    found, (values, expected) = shapley_values(forest, cells), by_definition(forest, cells)
    assert np.abs(values).max() > 0.1
    np.testing.assert_allclose(found.values, values, atol=1e-13)
    np.testing.assert_allclose(found.expected, expected, atol=1e-13)
    np.testing.assert_allclose(found.values.sum(axis=1) + found.expected, forest.scores(cells), atol=1e-12)


def test_deep_trees_are_those_of_the_paper():
    """Fourteen levels, a chain of which twelve features are asked about: too many sets for the definition."""
    rng = np.random.default_rng(7)
    tree = (1.5, 3.0)
    for level in range(14):
        sides = [tree, (float(rng.standard_normal()), float(rng.integers(1, 9)))]
        tree = (level % 12, [0, 64], *(sides if level % 3 else sides[::-1]))
    forest, cells = forest_of(tree, drawn_tree(rng, 12, 8)), drawn_cells(rng, 12, 40)
    found = shapley_values(forest, cells).values[:, :, 0]
    expected = [sum(by_the_paper(forest, root, row) for root in forest.starts[:-1]) for row in cells.T]
    np.testing.assert_allclose(found, expected, atol=1e-9)


def test_any_depth_adds_up():
    rng, tree = np.random.default_rng(1), (1.0, 1.0)
    for level in range(150):
        tree = (level, [255], tree, (float(rng.standard_normal()), 1.0))
    forest, cells = forest_of(tree), drawn_cells(rng, 150, 50)
    cells[:, 0] = 255  # one row goes all the way
    found = shapley_values(forest, cells)
    np.testing.assert_allclose(found.values.sum(axis=1) + found.expected, forest.scores(cells), atol=1e-11)


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("rows", [0, 1, 3, kernels.BLOCK - 1, kernels.BLOCK, kernels.BLOCK + 1, 2 * kernels.BLOCK + 5])
def test_a_row_has_the_same_bits_wherever_it_stands(rows):
    rng = np.random.default_rng(rows)
    forest, cells = forest_of(*(drawn_tree(rng, 5, 4) for _ in range(5))), drawn_cells(rng, 6, rows)
    together = shapley_values(forest, cells).values
    assert together.shape == (rows, 6, 1)
    assert not together[:, 5].any()  # never asked about
    for i in {0, rows // 2, rows - 1} if rows else ():
        alone = shapley_values(forest, np.ascontiguousarray(cells[:, i : i + 1])).values
        assert together[i].tobytes() == alone[0].tobytes()


def test_a_forest_without_splits_has_its_expected_score_alone():
    found = shapley_values(forest_of((0.25, 9.0), (0.5, 9.0), base=(1.0,)), np.zeros((2, 3), np.uint8))
    assert found.expected.tolist() == [1.75]
    assert not found.values.any()


def test_parties_are_sums_of_their_features():
    rng = np.random.default_rng(5)
    forest, cells = forest_of(*(drawn_tree(rng, 4, 4) for _ in range(3))), drawn_cells(rng, 4, 9)
    found = shapley_values(forest, cells)
    parties = found.of_parties(("bank", "shop", "bank", "clinic"))
    assert list(parties) == ["bank", "shop", "clinic"]
    np.testing.assert_allclose(parties["bank"], found.values[:, 0] + found.values[:, 2])
    np.testing.assert_allclose(sum(parties.values()) + found.expected, forest.scores(cells))
    with pytest.raises(OptionError, match="there are 2 owners for 4 features"):
        found.of_parties(("bank", "shop"))


@pytest.mark.parametrize("classes", [2, 3])
def test_xgboosts_contributions(classes):
    """On a model of its own: cells are what lies between its cuts, and missing values are cell 255."""
    xgboost = pytest.importorskip("xgboost")
    rng = np.random.default_rng(classes)
    X = rng.standard_normal((300, 5)).astype(np.float32)
    y = np.clip(X[:, 0] * X[:, 1] + X[:, 2] + 1.0 + 0.3 * rng.standard_normal(300), 0, classes - 0.01).astype(int)
    X[rng.random(X.shape) < 0.1] = np.nan
    options = {"max_depth": 4, "eta": 0.3, "nthread": 1, "base_score": 0.5, "max_bin": 32, "tree_method": "hist"}
    options |= {"objective": "multi:softprob", "num_class": 3} if classes > 2 else {"objective": "binary:logistic"}
    outputs, data = classes if classes > 2 else 1, xgboost.DMatrix(X, y)
    booster = xgboost.train(options, data, 8)
    trees = json.loads(booster.save_raw("json"))["learner"]["gradient_booster"]["model"]["trees"]
    cuts = [[] for _ in range(5)]
    for tree in trees:
        for feature, cut, child in zip(
            tree["split_indices"], tree["split_conditions"], tree["left_children"], strict=True
        ):
            cuts[feature] += [np.float32(cut)] if child >= 0 else []
    cuts = [np.unique(np.array(one, np.float32)) for one in cuts]
    cells = np.array([np.searchsorted(cuts[j], X[:, j], side="right") for j in range(5)]).astype(np.uint8)
    cells[np.isnan(X.T)] = 255

    def taken(tree, node):
        condition = tree["split_conditions"][node]
        if (left := tree["left_children"][node]) < 0:
            return condition, tree["sum_hessian"][node]
        feature = tree["split_indices"][node]
        below = [*range(np.searchsorted(cuts[feature], np.float32(condition)) + 1)]
        missing = [255] if tree["default_left"][node] else []
        return feature, below + missing, taken(tree, left), taken(tree, tree["right_children"][node])

    base = (0.0,) if classes == 2 else (0.5,) * 3  # 0.5 is a probability there, and a score here
    forest = forest_of(*(taken(one, 0) for one in trees), outputs=np.arange(len(trees)) % outputs, base=base)
    margin = booster.predict(data, output_margin=True).reshape(300, outputs)
    np.testing.assert_allclose(forest.scores(cells), margin, atol=1e-5)
    found = shapley_values(forest, cells)
    theirs = booster.predict(data, pred_contribs=True).reshape(300, outputs, 6)
    assert np.abs(theirs[:, :, :5]).max() > 0.3
    np.testing.assert_allclose(found.values, theirs[:, :, :5].transpose(0, 2, 1), atol=2e-5)
    np.testing.assert_allclose(np.broadcast_to(found.expected, (300, outputs)), theirs[:, :, 5], atol=2e-5)


def test_what_can_not_be_explained_is_refused():
    forest = forest_of((1, [0], (1.0, 2.0), (2.0, 3.0)))
    for cells in (np.zeros((2, 3)), np.zeros(3, np.uint8), np.zeros((3, 2), np.uint8).T):
        with pytest.raises(DataError, match="cells must be a C-contiguous uint8 array"):
            shapley_values(forest, cells)
    with pytest.raises(OptionError, match="asks about 2 features, and there is a row of cells for 1"):
        shapley_values(forest, np.zeros((1, 3), np.uint8))
    cells = np.zeros((2, 3), np.uint8)
    with pytest.raises(DataError, match="tree 0 has a cover that is negative"):
        shapley_values(replace(forest, cover=-forest.cover), cells)
    for left in (0, 3):
        with pytest.raises(DataError, match="tree 0 has a node before its parent"):
            shapley_values(replace(forest, left=np.array([left, -1, -1], np.int32)), cells)


# -- importance --------------------------------------------------------------------------------------------------------

# The root asks about feature 1 with gain 1 and cover 10, below it feature 0 with gain 3 and cover 7; then 1 and 6, 4.
TWO = forest_of(
    (1, [0], (0.5, 3.0), (0, [0, 1], (1.0, 5.0), (2.0, 2.0))),
    (1, [2], (-0.5, 1.0), (0.75, 3.0)),
)  # fmt: skip


def test_splits_are_added_up():
    found = split_importance(TWO, ("a", "b", "c"))
    assert found.names == ("a", "b", "c")
    assert found.gain.tolist() == [3.0, 1.0 + 6.0, 0.0]
    assert found.cover.tolist() == [7.0, 10.0 + 4.0, 0.0]
    assert found.splits.tolist() == [1.0, 2.0, 0.0]
    parties = found.of_parties(("bank", "shop", "bank"))
    assert parties.names == ("bank", "shop")
    assert (parties.gain.tolist(), parties.cover.tolist()) == ([3.0, 7.0], [7.0, 14.0])
    assert parties.normalised().gain.tolist() == [0.3, 0.7]
    assert found.normalised().splits.tolist() == [1 / 3, 2 / 3, 0.0]
    assert split_importance(forest_of((1.0, 2.0)), ("a", "b")).normalised().gain.tolist() == [0.0, 0.0]
    with pytest.raises(OptionError, match="asks about 2 features, and there is a name for 1"):
        split_importance(TWO, ("a",))


# Whether features 0 and 1, both of the shop, are equal; feature 2 adds a little, and feature 3 is never asked about.
EQUAL = forest_of(
    (0, [0], (1, [0], (1.0, 1.0), (-1.0, 1.0)), (1, [0], (-1.0, 1.0), (1.0, 1.0))),
    (2, [0], (0.1, 2.0), (-0.1, 2.0)),
)  # fmt: skip


def test_a_shuffle_is_what_a_slow_twin_makes_of_it():
    cells = np.random.default_rng(0).integers(0, 2, (4, 400)).astype(np.uint8)
    labels, kept = EQUAL.scores(cells)[:, 0], cells.copy()

    def score(scores):
        return -float(np.square(scores[:, 0] - labels).mean())

    found = permutation_importance(EQUAL, cells, score, "abcd", np.random.default_rng(3), repeats=4)
    rng = np.random.default_rng(3)
    orders = [rng.permutation(400) for _ in range(4)]
    for feature in range(4):
        for repeat, order in enumerate(orders):
            changed = cells.copy()
            changed[feature] = cells[feature, order]
            assert found.drops[feature, repeat] == -score(EQUAL.scores(changed))
    assert (found.names, found.score, found.drops.shape) == (tuple("abcd"), 0.0, (4, 4))
    np.testing.assert_allclose(found.mean, found.drops.mean(axis=1))
    np.testing.assert_allclose(found.deviation, found.drops.std(axis=1, ddof=1))
    assert found.mean[0] > 1.5  # half of the rows are wrong by 2
    assert 0.01 < found.mean[2] < 0.03
    assert found.mean[3] == 0.0
    assert (cells == kept).all()


def test_a_partys_features_are_shuffled_together():
    cells = np.random.default_rng(1).integers(0, 2, (4, 300)).astype(np.uint8)
    seen = []

    def score(scores):
        seen.append(scores[:, 0])
        return 0.0

    owners = ("shop", "shop", "bank", "bank")
    found = permutation_importance(EQUAL, cells, score, "abcd", np.random.default_rng(2), owners=owners, repeats=1)
    assert found.names == ("shop", "bank")
    assert found.deviation.tolist() == [0.0, 0.0]
    first, shop, bank = (np.sign(scores) for scores in seen)
    assert (shop != first).any()
    assert (np.sort(shop) == np.sort(first)).all()  # pairs of the shop's cells stay pairs
    assert (bank == first).all()  # and the bank's part is small


def test_impossible_shuffles_are_refused():
    cells, rng = np.zeros((4, 5), np.uint8), np.random.default_rng(0)
    with pytest.raises(OptionError, match="repeats must be at least 1, got 0"):
        permutation_importance(EQUAL, cells, np.mean, "abcd", rng, repeats=0)
    with pytest.raises(OptionError, match="there are 3 names for 4 features"):
        permutation_importance(EQUAL, cells, np.mean, "abc", rng)
    with pytest.raises(OptionError, match="there are 1 owners for 4 features"):
        permutation_importance(EQUAL, cells, np.mean, "abcd", rng, owners=["shop"])


# -- drawings ----------------------------------------------------------------------------------------------------------

OWNERS, NAMES = ("bank", "shop"), ("age", "shop column 1")


def condition(feature, mask):
    return "age <= 34.5 or missing" if feature == 0 else f"cells {int(mask[0]):b}"


def test_text_is_indented_and_says_who_asks_what():
    assert trees_as_text(TWO, OWNERS, NAMES, condition) == (
        "tree 1 of 2\n"
        "[shop] shop column 1: cells 1  (gain 1, 10 rows)\n"
        "├─ yes: +0.5  (3 rows)\n"
        "└─ no: [bank] age <= 34.5 or missing  (gain 3, 7 rows)\n"
        "   ├─ yes: +1  (5 rows)\n"
        "   └─ no: +2  (2 rows)\n"
        "\n"
        "tree 2 of 2\n"
        "[shop] shop column 1: cells 100  (gain 6, 4 rows)\n"
        "├─ yes: -0.5  (1 row)\n"
        "└─ no: +0.75  (3 rows)\n"
    )
    several = replace(TWO, outputs=np.array([0, 2], np.int32), base=np.zeros(3))
    assert trees_as_text(several, OWNERS, NAMES, condition, trees=[1]).startswith("tree 2 of 2, score 3\n[shop]")
    assert trees_as_text(TWO, OWNERS, NAMES, condition, trees=[]) == ""


def texts(svg):
    return ["".join(one.itertext()) for one in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def test_an_svg_says_the_same():
    found = texts(trees_as_svg(TWO, OWNERS, NAMES, condition))
    for one in ("bank", "shop", "tree 2 of 2", "shop column 1: cells 100", "age <= 34.5 or missing", "+0.75", "1 row"):
        assert one in found
    assert (found.count("yes"), found.count("no")) == (3, 3)
    assert "tree 1 of 2" not in texts(trees_as_svg(TWO, OWNERS, NAMES, condition, trees=[1]))


@pytest.mark.parametrize(
    "name",
    [
        "</text><script>alert(1)</script>",
        'a" onload="alert(1)',
        "&lt;&#0;]]>",
        "\x1b[2J\x1b[31mred",
        "two\nlines\r\x00",
        "\u202eright to left",
        "half \udc80 a letter",
        "診療科",
        "e\u0301te\u0301",
    ],
)
def test_names_from_files_are_names_and_nothing_else(name):
    for owners, names, said in ((("p", "q"), (name, name), "in 1"), ((name, name), ("x", "y"), f"in {name}")):
        svg = trees_as_svg(TWO, owners, names, lambda *_, said=said: said)
        root = ElementTree.fromstring(svg.encode())
        assert {one.tag.removeprefix(SVG) for one in root.iter()} == {
            "svg",
            "title",
            "style",
            "rect",
            "text",
            "path",
            "g",
        }
        assert not any(key.startswith("on") or "href" in key for one in root.iter() for key in one.attrib)
        assert not any(
            address in svg.replace("http://www.w3.org/2000/svg", "") for address in ("http", "url(", "@import")
        )
        written = trees_as_text(TWO, owners, names, lambda *_, said=said: said)
        shown = "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in name)
        assert shown in written
        assert any(shown in one for one in texts(svg))
        assert all(line.isprintable() for line in written.split("\n"))


def test_a_long_question_is_cut_in_its_middle_and_told_in_full_when_pointed_at():
    svg = trees_as_svg(TWO, OWNERS, ("age", "a" * 70), lambda *_: "ranges 3-7 of 9")
    assert not any("a" * 50 in one for one in texts(svg))
    assert any(one.startswith("aaa") and one.endswith(": ranges 3-7 of 9") and "…" in one for one in texts(svg))
    titles = [one.text for one in ElementTree.fromstring(svg).iter(f"{SVG}title")]
    assert f"shop: {'a' * 70}: ranges 3-7 of 9" in titles


@pytest.mark.parametrize("seed", range(5))
def test_no_box_lies_over_another(seed):
    rng = np.random.default_rng(seed)
    forest = forest_of(*(drawn_tree(rng, 2, 6) for _ in range(4)))
    root = ElementTree.fromstring(trees_as_svg(forest, OWNERS, NAMES, condition))
    width, height = (float(root.get(key)) for key in ("width", "height"))
    boxes = []
    for tree in root.findall(f"{SVG}g"):
        right, down = map(float, tree.get("transform").removeprefix("translate(").removesuffix(")").split())
        for box in (one for one in tree.iter(f"{SVG}rect") if one.get("class") == "box"):
            x, y, w, h = (float(box.get(key)) for key in ("x", "y", "width", "height"))
            boxes.append((right + x, down + y, right + x + w, down + y + h))
    assert len(boxes) == len(forest.feature)
    assert all(x >= 0 and y >= 0 and w <= width and h <= height for x, y, w, h in boxes)
    for one, other in combinations(boxes, 2):
        assert one[2] < other[0] or other[2] < one[0] or one[3] < other[1] or other[3] < one[1]


def test_drawings_that_can_not_be_are_refused():
    for draw in (trees_as_text, trees_as_svg):
        with pytest.raises(OptionError, match="there is no tree 2: the forest has 2"):
            draw(TWO, OWNERS, NAMES, condition, trees=[2])
        with pytest.raises(OptionError, match="asks about 2 features, and there is a party for 1"):
            draw(TWO, ("bank",), NAMES, condition)
        with pytest.raises(OptionError, match="asks about 2 features, and there is a name for 1"):
            draw(TWO, OWNERS, ("age",), condition)
