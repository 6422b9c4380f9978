"""Prometheus metrics of the scheduler and of drivers."""
