"""The dashboard: web pages that show a scheduler's state, or a recording at a chosen time."""
