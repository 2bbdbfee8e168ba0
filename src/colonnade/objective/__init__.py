"""What is minimised, and how good the result is: losses, penalties, metrics, deviance."""
