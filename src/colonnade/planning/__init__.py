"""What a run would take, from short trials over the real lines."""
