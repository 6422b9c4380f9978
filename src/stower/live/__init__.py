"""Runs the engine, controllers and resource drivers on any Kubernetes API server (asyncio)."""
