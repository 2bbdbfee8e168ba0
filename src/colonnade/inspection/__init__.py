"""What a party finds out about itself: what it recorded of a run, and what the others could make of what it told them.

A recording is the party's own view of a run, encrypted beside its part of the model. An audit of it goes into the
report, and decides with the policy whether a version may come into use.
"""
