"""Lines between organisations (certificates, TLS, handshakes, connections that break) and between ranks of MPI."""
