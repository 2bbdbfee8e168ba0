"""Lines between organisations: certificates, handshakes, TLS, and connections that may break."""
