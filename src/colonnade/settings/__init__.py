"""Settings files: what may stand in a TOML file, declared once; what did stand there, checked, with line and key."""
