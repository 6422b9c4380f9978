"""API objects, without I/O: quantities, metadata, selectors, taints, resources.

kinds/ has one file per API kind.
"""
