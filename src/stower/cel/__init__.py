"""CEL, the language of device selectors: text in, a checked and compiled program out.

`device.py` is what others use: the environment that Kubernetes gives to selectors of devices. Its
parts: `syntax` (text to tree), `types` and `declarations` (what there is), `checker` (types of a
tree), `cost` (what it may cost at worst), `program` (the tree as closures), `values` and the
`library_*` modules (what functions do). Sources: the CEL specification (google/cel-spec), and how
Kubernetes 1.36 configures cel-go (apiserver pkg/cel, dynamic-resource-allocation cel).

Must not know what a claim or an allocation is.
"""
