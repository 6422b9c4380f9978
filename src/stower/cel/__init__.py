"""CEL (Common Expression Language) as Kubernetes uses it in device selectors and rules of schemas:
parses, type-checks, estimates the cost of, compiles and evaluates expressions.

Other packages use `device`, the environment that Kubernetes gives to selectors of devices, and
`schema`, that of the rules of CustomResourceDefinitions. Stages:
`syntax` (text to tree, with `macros`), `checker` (with `types` and `declarations`), `literals`,
`cost`, `program` (tree to a Python function). `values` and the `library_*` modules implement values
and functions. Sources: the CEL specification (google/cel-spec), and how Kubernetes 1.36 configures
cel-go (apiserver pkg/cel, dynamic-resource-allocation cel).

Must not know what a claim or an allocation is.
"""
