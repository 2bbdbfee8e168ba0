"""What each party of a run can see, and what it can make of it: see `root_view`."""
