"""Finds placements for trees of pod groups (KEP-6012): assigns the pods of a whole tree to nodes,
so that every group gets its minimum and shares a topology domain, or proves that this is
impossible.

A tree is a root group (CompositePodGroup or PodGroup) with all groups below it. problem_builder
turns a tree into numbers (problem); placement runs the stages bounds, search, repair and
exact_model; placement_check validates the result; reasons words failures. units and overview serve
preemption and `stower groups`.

Must not know plugins, queues or writes: verdicts of plugins come in as numbers per node.
"""
