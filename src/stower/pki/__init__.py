"""Certificates and TLS: makes a server's own certificates, and loads certificates from files."""
