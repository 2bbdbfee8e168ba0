"""SSCA over sites with handwritten digits, as a Flower app."""
