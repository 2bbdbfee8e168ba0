"""Every numba function, each with a numpy twin in the tests that it must equal."""
