"""Estimators in scikit-learn's manner: one class per model, over parties in place of a table."""
