"""What a run tells those who follow it: its events, where they are kept, and how they are read."""
