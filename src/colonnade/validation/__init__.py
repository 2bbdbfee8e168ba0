"""Cross-validation and search: many fits of the same parties' rows in one run, with one agreement on keys."""
