"""What one party of a run gets to see, written down, and what follows from it by arithmetic alone.

A view holds messages, totals and the public order of rows; nothing here knows the truth about another party.
"""
