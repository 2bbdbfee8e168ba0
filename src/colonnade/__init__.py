"""Colonnade: vertical federated learning. Columns and parameters stay at home; one model stands on all of them."""
