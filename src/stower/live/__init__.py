"""The asyncio shell: an engine on any Kubernetes API server."""
