"""Attacks on a party's view of a run, one file each, with the paper that an attack comes from.

An attack gets a `Case`, which is what the attacker has, and returns a `Guess`. The truth is nowhere in this room: how
good a guess is, and how good it would have been without the run, `audit` works out.
"""
