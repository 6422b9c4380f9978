"""The binding cycle: Reserve, PreBind, Permit and Bind of pods that have a node.

Must not know how the node was chosen.
Exports BindingCycle (binding_cycle), PreBind (pre_bind), Permit (permit) and PendingWrites
(pending_writes).
"""
