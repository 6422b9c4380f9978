"""The command line: `stower` (main), `stower-kube-scheduler` (kube_scheduler), and helpers that the
verbs share: arguments, input files, output.

Must not decide anything about pods. Imports nothing here, so that `stower --help` stays fast.
"""
