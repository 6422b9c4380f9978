"""Tests of the API server without sockets."""
