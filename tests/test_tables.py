"""Short forms of tables have every pair of values, and the rest runs with `make test-all`."""

from __future__ import annotations

from itertools import combinations, product

from tables import by_turns, covering, pairwise

TABLE = [*product("abcd", [1, 2, 3], [True, False], "xyz")]


def pairs(cells):
    return {pair for cell in cells for pair in combinations(enumerate(cell), 2)}


def test_every_pair_of_values_occurs_in_a_few_cells():
    short = covering(TABLE)
    assert pairs(short) == pairs(TABLE)
    assert set(short) <= set(TABLE)
    assert len(short) < len(TABLE) / 4
    assert short == covering(TABLE)


def test_pairs_that_the_table_does_not_have_are_not_asked_for():
    table = [cell for cell in TABLE if cell[0] != "a" or cell[2]]
    assert pairs(covering(table)) == pairs(table)
    assert covering([("only", "one")]) == [("only", "one")]
    assert covering([("one",), ("other",)]) == [("one",), ("other",)]  # without pairs, every value


def test_all_cells_stay_in_the_table_and_those_that_are_asked_for_in_its_short_form():
    wanted = next(cell for cell in TABLE if cell not in covering(TABLE))
    made = pairwise(TABLE, always=lambda *cell: cell == wanted)
    assert [one.values for one in made] == TABLE
    short = {one.values for one in made if not one.marks}
    assert short == {*covering(TABLE), wanted}


def test_every_cell_and_every_value_has_a_turn():
    made = by_turns("abcde", (True, False))
    assert [one.values for one in made] == [*product("abcde", (True, False))]
    short = [one.values for one in made if not one.marks]
    assert short == [("a", True), ("b", False), ("c", True), ("d", False), ("e", True)]
