"""Computation on shares: numbers that two parties hold in two halves, neither of which says anything by itself."""
