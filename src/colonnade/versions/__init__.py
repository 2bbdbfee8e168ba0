"""Every training of a party as a version that is kept: what it is called, which one is in use, what its data were like.

A version is a folder `versions/<training id>/` in the party's own folder, with its part of the model, `version.json`
about the training and `profile.json` about the columns; `promoted.json` beside these folders says which one is in use.
"""
