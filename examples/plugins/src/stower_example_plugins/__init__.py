"""Example plugins for Stower."""
