"""Tests of the metrics that Prometheus scrapes."""
