"""Keys, masks, shares, and arithmetic on secrets: reviewed as one room."""
