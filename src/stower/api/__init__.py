"""API semantics, pure: what a Kubernetes API server does with requests, without a socket or a file.

Must not know how requests arrive or where objects are kept beyond memory.
"""
