"""Tables and prepared columns larger than memory: read in chunks, and kept on the disk where they are too large."""
