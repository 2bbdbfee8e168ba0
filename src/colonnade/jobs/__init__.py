"""What organisations agree on and keep: job and party files, policy, budget, models, checkpoints."""
