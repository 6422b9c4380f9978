"""Validates objects kind by kind: each function takes an object and returns its faults.

Source: pkg/apis/*/validation, Kubernetes 1.36, default feature gates. Paths, types and texts are
upstream's. Objects must be cleaned and have their defaults.
"""
