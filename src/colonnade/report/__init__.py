"""The validation report of a version: one HTML page for each party, with its own view of the model and nothing else."""
