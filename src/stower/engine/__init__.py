"""The scheduling engine: events and the time go in, writes come out; see engine.engine.Engine.step.

Must not know files, sockets, clocks, threads, or any plugin: it is given its plugins.
At the top: the engine, handlers of watch events, the outbox, the status reporter, limits. Rooms:
queue, cycle, preemption, binding, groups, extenders, explain.
"""
