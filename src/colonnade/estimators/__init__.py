"""The scikit-learn face: one class per model."""
