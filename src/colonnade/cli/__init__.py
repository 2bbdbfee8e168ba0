"""The `colonnade` command."""
