"""Newton steps of several parties: the rows that are used, what is told of them, the search, and who decides."""
