"""What left a party, for good: a chained, sealed and countersigned record."""
