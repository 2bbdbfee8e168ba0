"""Which people all parties have in common, found without showing anybody the others."""
