"""What every estimator has in common with scikit-learn's: options, predictions, probabilities, thresholds, files."""
