"""The dashboard: what a scheduler has in mind, as a page in a browser."""
