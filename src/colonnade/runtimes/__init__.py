"""Where parties run. Nothing here knows what is computed."""
