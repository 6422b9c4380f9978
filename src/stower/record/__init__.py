"""Recordings: files with the events and writes of engines, and their replay."""
