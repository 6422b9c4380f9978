"""Warm capacity: room held by placeholders that are never in the way of users (seed 001)."""
