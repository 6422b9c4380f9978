"""The scheduling engine: events and the time go in, writes come out; see engine.engine.Engine.step.

Must not know files, sockets, clocks, threads, or any plugin: its plugins are passed in. At the top:
the engine, handlers of watch events, the outbox, the status reporter, limits. Packages: queue,
cycle, preemption, binding, groups, extenders, explain.
"""
