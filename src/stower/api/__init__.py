"""Implements the semantics of a Kubernetes API server as pure code, without sockets and files.

Must not know how requests arrive or how objects are stored beyond memory.
"""
