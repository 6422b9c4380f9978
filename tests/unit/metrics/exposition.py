"""Exposition: metrics in the text format, parsed by Prometheus' own client.

Must not know the meaning of any metric.
"""

from prometheus_client.parser import text_string_to_metric_families

# The samples of one name by label values, which are in the order of the label names.
Values = dict[tuple[str, ...], float]


class Exposition:
    """The metrics of a text in Prometheus' format: types, help texts and samples."""

    def __init__(self, text: bytes) -> None:
        self.types: dict[str, str] = {}
        self.helps: dict[str, str] = {}
        self._values: dict[str, Values] = {}
        for family in text_string_to_metric_families(text.decode()):
            self.types[family.name] = family.type
            self.helps[family.name] = family.documentation
            for name, labels, value, *_ in family.samples:
                key = tuple(labels[label] for label in sorted(labels))
                values = self._values.setdefault(name, {})
                assert key not in values, f"{name} {key} is there twice"
                values[key] = value

    def __getitem__(self, name: str) -> Values:
        return self._values.get(name, {})

    def bounds(self, name: str) -> list[float]:
        """Returns the upper bounds of the buckets of a histogram without labels."""
        return [float(bound) for (bound,) in self[f"{name}_bucket"]]
