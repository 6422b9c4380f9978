"""HTTP extenders: calls are writes, responses are events, so that the engine stays pure.

Must not know HTTP.
Exports ExtenderCycle (extender_cycle), ExtenderCalls (extender_calls).
"""
