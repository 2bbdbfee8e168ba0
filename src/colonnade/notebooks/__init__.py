"""How things look in a notebook: tables in place of a line of text, without a library."""
