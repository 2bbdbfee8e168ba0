"""Boosted trees: how one tree is grown over cells, the forest that comes of it, and what it says about its columns."""
