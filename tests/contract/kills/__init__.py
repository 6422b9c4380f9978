"""Kills the processes of `stower up` again and again and watches the cluster from outside.

No module of this package imports stower: requests are plain HTTP and JSON, and the programs run as
processes. `python -m tests.contract.kills MINUTES [SEED]` runs it.
"""
