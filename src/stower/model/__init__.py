"""API objects, pure: quantities, metadata, selectors, taints, affinity; one API kind per file in
kinds/.
"""
