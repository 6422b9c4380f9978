"""Devices: pools that drivers publish, claims that use them, and the search for allocations.

`inventory` has the pools as each node reaches them, `requests` the requests of a claim, `allocator`
the search for devices that meet the requests, `results` the allocation that is written. Names and
rules are those of resource.k8s.io/v1 (KEP-4381, 4815, 4816, 5018, 5055, 5007, 5075).

Must not know of pods' other needs, of cycles, or of writes.
"""
