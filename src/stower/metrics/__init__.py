"""Metrics: what is counted while a shell runs, as Prometheus reads it."""
