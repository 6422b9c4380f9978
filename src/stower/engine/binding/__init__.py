"""The binding cycle: Reserve, Permit, PreBind and Bind of pods that have a node.

Must not know how a node was chosen.
Exports BindingCycle, Permit, PreBind and PendingWrites, each from the module of that name.
"""
