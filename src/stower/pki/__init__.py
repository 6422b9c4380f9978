"""Certificates: those that servers make themselves, and those that they are given."""
