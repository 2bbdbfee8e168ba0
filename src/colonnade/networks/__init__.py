"""Parties' torch modules as blocks: a network can stand where a linear block does."""
