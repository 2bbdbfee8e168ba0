"""What organisations bring: parties with columns, sites with rows, their labels and ids. No I/O."""
