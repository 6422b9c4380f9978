"""Contracts: events in, writes out, the plugin protocol, reasons and diagnosis, observations."""
