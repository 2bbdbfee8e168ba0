"""Standard errors, p values and intervals of a trained model's coefficients."""
