"""How rounds follow each other: local steps between exchanges, and parties that do not wait for each other."""
