"""Stower, a scheduler compatible with kube-scheduler, with simulator, API server and tools.

Layers, each of which must not know the ones after it: model (API objects), state (the cluster in
arrays), framework (contracts), plugins and devices, engine (decisions as pure functions of events),
then live (on a real API server), sim (on a simulated one) and cli.
"""
