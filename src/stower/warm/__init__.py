"""Warm capacity: room reserved by placeholders, which users displace (seed 001)."""
