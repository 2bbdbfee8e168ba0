"""What organisations contribute: parties with columns, sites with rows, and their labels and ids. No I/O."""
