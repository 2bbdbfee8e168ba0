"""Parties that do not wait for each other: how batches follow each other, who keeps up, and what updates are made."""
