"""Rules that objects must keep, kind by kind: functions of an object that return its faults.

Source: pkg/apis/*/validation, Kubernetes 1.36, default feature gates. Paths, types and texts are
upstream's. Objects come cleaned, with defaults.
"""
