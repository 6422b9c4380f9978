"""Documents whose commands are run as written."""
