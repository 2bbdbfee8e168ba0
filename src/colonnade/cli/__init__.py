"""The command line, `colonnade`."""
