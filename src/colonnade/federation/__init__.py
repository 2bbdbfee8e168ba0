"""Between organisations: who is who, and what all of them agreed on."""
