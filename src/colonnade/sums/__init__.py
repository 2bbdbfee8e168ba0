"""Secure sums: how contributions become a score."""
