"""Simulated kubelets and the controllers of kube-controller-manager, as pure functions of objects.

A controller reads objects and returns API requests. A shell sends the requests, over HTTP or to an
Api in memory. Must not know HTTP, threads or clocks.
"""
