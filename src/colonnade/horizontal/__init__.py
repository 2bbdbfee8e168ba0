"""Learning over rows: a server that asks, and sites that answer under masks."""
