"""Extenders: calls are writes and responses are events, so that the engine stays pure.

Must not know HTTP, which is in stower.live.extenders.
Exports ExtenderCycle (extender_cycle), ExtenderCalls (extender_calls) and the shapes of responses
(responses).
"""
