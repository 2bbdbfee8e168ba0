"""What every vertical algorithm is made of: exchanges, stopping, keeping, encryption."""
