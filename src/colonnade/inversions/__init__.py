"""Attacks on columns, one file each: from what a party saw of sums, networks, kernels, trees or scores to the columns.

They are attacks like those in `attacks`, which says what they get and return.
"""
