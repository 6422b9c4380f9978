"""Packing: scores nodes for a pod so that pods like those of the recent past still fit best.

`mix` counts the requests of recent pods; `fill`, `phi`, `dgf` and `fgd` compute the worth of a
node's state for that mix; `states` and `packer` keep the worth for every node and every choice of
devices there; `shares` converts devices and requests to thousandths; `book` follows the state of a
cluster.

All modules except `shares` and `book` work on plain numbers: a device has a kind and a free share
of 0 to 1000, and a row of `shares` has for each kind the share that each ask takes (0: the ask
cannot use the device).
"""
