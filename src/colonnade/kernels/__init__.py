"""Every function that is compiled, each with a slow twin in the tests that it must equal."""
