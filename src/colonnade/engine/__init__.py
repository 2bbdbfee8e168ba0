"""What every vertical algorithm is made of: exchanges, stopping, keeping, asynchrony, encryption."""
