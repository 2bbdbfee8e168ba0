"""What an organisation does: check, run, predict, serve."""
