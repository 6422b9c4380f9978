"""Serves the API over HTTP with durable objects: a small API server for one machine."""
