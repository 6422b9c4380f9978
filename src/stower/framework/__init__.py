"""Contracts between engine, plugins and shells: events, writes, the plugin protocol, profiles and
configuration, rejections and diagnoses, observers.

Must not know which plugins exist, or how the engine schedules.
"""
