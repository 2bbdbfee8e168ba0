"""Who worked, waited and sent what in a run under the virtual clock: recorded, added up and drawn as lanes."""
