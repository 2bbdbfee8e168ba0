"""Lines that nobody hands over: between organisations (certificates, TLS, handshakes, connections that break), and MPI."""
