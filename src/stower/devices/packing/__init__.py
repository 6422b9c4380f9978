"""Packing: where to place a pod so that the pods of the recent past would still fit most.

`mix` has what pods have asked for, `fill`, `phi`, `dgf` and `fgd` what the state of a node is worth
for that, `states` and `packer` keep it for every node and every way to take devices, `shares` reads
devices and requests as thousandths, and `book` follows a cluster.

All but `shares` and `book` are about plain numbers: a device has a kind and a free share of 0 to
1000, and a row of `shares` says for each kind which share of it each ask takes (0: none at all).
"""
