"""What a run told each party about the others, measured: attacks on what was seen, and what they found beyond chance.

A view of a run (`views`) becomes cases for attacks (`attacks`); here their guesses are held against the truth, and
against what the attacker would have had without the run.
"""
