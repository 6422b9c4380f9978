"""Devices: what there is, who may have it, and how claims are given theirs.

`inventory` has the pools as nodes reach them, `requests` what a claim asks for, `allocator` the
search for devices that meet it, `results` what is written of them. Names and rules are those of
resource.k8s.io/v1 (KEP-4381, 4815, 4816, 5018, 5055, 5007, 5075).

Must not know of pods' other needs, of cycles, or of writes.
"""
