"""What a party contributes to the score."""
