"""Kinds of models: how each is trained, scored, saved and described, and the one door into training."""
