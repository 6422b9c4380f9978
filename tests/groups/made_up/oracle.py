"""Says of made-up problems whether there is a placement: a model of the rules of Kubernetes for
CP-SAT, which shares nothing with the search. A process of its own, as the two solvers cannot be
loaded into one: reads instances from standard input, one JSON document a line, and answers each
with true, false or null (not decided).

A placement is valid if the pods could come in some order. For spreading and affinity that is a
condition on where all of them are in the end: counts that differ too much are no matter as long as
the domain with more was filled last; a pod follows any other that may come before it.
"""

import sys
from collections.abc import Iterable, Iterator

import msgspec
from ortools.sat.python import cp_model

from tests.groups.made_up.instances import Instance, MadeNode, Pods

SECONDS_MAX = 60


class Oracle:
    """The model of one instance."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.model = cp_model.CpModel()
        self.admitted = [self.model.new_bool_var("") for _ in instance.groups]
        # By pods and node, how many are there.
        self.x = [
            [self.model.new_int_var(0, p.count if _may_be(p, n) else 0, "") for n in instance.nodes]
            for p in instance.pods
        ]
        self._firsts: dict[str, dict[str, cp_model.IntVar]] = {}
        self.model.add(self.admitted[0] == 1)
        self._groups()
        self._nodes()
        for k, pods in enumerate(instance.pods):
            self.model.add(sum(self.x[k]) <= pods.count)
            self._apart(k, pods)
            self._near(k, pods)
            self._spread(k, pods)
        self._apart_of_bound()

    def answer(self) -> bool | None:
        """Whether there is a placement."""
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.max_time_in_seconds = SECONDS_MAX
        status = solver.solve(self.model)
        if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return True
        return False if status == cp_model.INFEASIBLE else None

    def _groups(self) -> None:
        groups, nodes = self.instance.groups, self.instance.nodes
        for g, group in enumerate(groups):
            own = [k for k, p in enumerate(self.instance.pods) if g in self._lineage(p.group)]
            if group.is_leaf:
                placed = sum(sum(self.x[k]) for k in own)
                self.model.add(placed >= max(group.minimum, 1)).only_enforce_if(self.admitted[g])
            else:
                children = [c for c, other in enumerate(groups) if other.parent == g]
                placed = sum(self.admitted[c] for c in children)
                self.model.add(placed >= max(group.minimum, 1)).only_enforce_if(self.admitted[g])
            for k in own:
                self.model.add(sum(self.x[k]) == 0).only_enforce_if(~self.admitted[g])
            if group.parent >= 0:
                self.model.add_implication(self.admitted[g], self.admitted[group.parent])
            if group.key:
                domains = self._domains(group.key)
                chosen = {value: self.model.new_bool_var("") for value in domains}
                self.model.add(sum(chosen.values()) <= 1)
                for n, node in enumerate(nodes):
                    value = node.labels.get(group.key)
                    for k in own:
                        if value is None:
                            self.model.add(self.x[k][n] == 0)
                        else:
                            self.model.add(self.x[k][n] == 0).only_enforce_if(~chosen[value])

    def _lineage(self, g: int) -> Iterator[int]:
        while g >= 0:
            yield g
            g = self.instance.groups[g].parent

    def _nodes(self) -> None:
        pods = self.instance.pods
        for n, node in enumerate(self.instance.nodes):
            here = [self.x[k][n] for k in range(len(pods))]
            self.model.add(sum(x * p.cpu for x, p in zip(here, pods, strict=True)) <= node.cpu)
            self.model.add(sum(x * p.gpu for x, p in zip(here, pods, strict=True)) <= node.gpu)
            self.model.add(sum(here) <= node.pods)
            claimed = sum(x * p.devices for x, p in zip(here, pods, strict=True))
            self.model.add(claimed <= node.devices)
            for port in {port for p in pods for port in p.ports}:
                taken = any(port in p.ports for p in node.bound)
                using = [x for x, p in zip(here, pods, strict=True) if port in p.ports]
                self.model.add(sum(using) <= int(not taken))

    # Rules between pods

    def _domains(self, key: str) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for n, node in enumerate(self.instance.nodes):
            if key in node.labels:
                found.setdefault(node.labels[key], []).append(n)
        return found

    def _bound(self, nodes: Iterable[int], app: str) -> int:
        return sum(p.app == app for n in nodes for p in self.instance.nodes[n].bound)

    def _placed(self, nodes: list[int], app: str, without: int = -1) -> cp_model.LinearExprT:
        return sum(
            self.x[k][n]
            for k, p in enumerate(self.instance.pods) if p.app == app and k != without
            for n in nodes
        )  # fmt: skip

    def _is_any(self, k: int, nodes: list[int]) -> cp_model.IntVar:
        """Whether any of these pods is on these nodes."""
        some = self.model.new_bool_var("")
        self.model.add(sum(self.x[k][n] for n in nodes) == 0).only_enforce_if(~some)
        return some

    def _apart(self, k: int, pods: Pods) -> None:
        for key, app in pods.apart:
            for nodes in self._domains(key).values():
                some = self._is_any(k, nodes)
                others = self._placed(nodes, app, k) + self._bound(nodes, app)
                self.model.add(others == 0).only_enforce_if(some)
                if app == pods.app:
                    self.model.add(sum(self.x[k][n] for n in nodes) <= 1)

    def _apart_of_bound(self) -> None:
        for node in self.instance.nodes:
            for key, app in (rule for p in node.bound for rule in p.apart):
                if key in node.labels:
                    nodes = self._domains(key)[node.labels[key]]
                    self.model.add(self._placed(nodes, app) == 0)

    def _near(self, k: int, pods: Pods) -> None:
        for key, app in pods.near:
            domains = self._domains(key)
            self._need_key(k, key)
            for value, nodes in domains.items():
                if self._bound(nodes, app):
                    continue
                leaders = sum(
                    self.x[j][n]
                    for j, p in enumerate(self.instance.pods)
                    if p.app == app and all(other != app for _, other in p.near)
                    for n in nodes
                )  # fmt: skip
                first = self._first(app, key, value) if app == pods.app else 0
                self.model.add(leaders + first >= 1).only_enforce_if(self._is_any(k, nodes))

    def _first(self, app: str, key: str, value: str) -> cp_model.LinearExprT:
        """Whether the first pod of an app whose pods follow each other is there: it needs nobody,
        where there is nobody yet."""
        if app not in self._firsts:
            domains = self._domains(key)
            is_none = not any(self._bound(nodes, app) for nodes in domains.values())
            firsts = {v: self.model.new_bool_var("") for v in domains}
            self.model.add(sum(firsts.values()) <= int(is_none))
            self._firsts[app] = firsts
        return self._firsts[app][value]

    def _need_key(self, k: int, key: str) -> None:
        for n, node in enumerate(self.instance.nodes):
            if key not in node.labels:
                self.model.add(self.x[k][n] == 0)

    def _spread(self, k: int, pods: Pods) -> None:
        """Those that have no such rule come last where there are many, and first elsewhere."""
        for key, skew, app in pods.spread:
            self._need_key(k, key)
            domains = self._domains(key)
            least = self.model.new_int_var(0, 10_000, "")
            for nodes in domains.values():
                self.model.add(least <= self._placed(nodes, app) + self._bound(nodes, app))
            for nodes in domains.values():
                alike = sum(
                    self.x[j][n]
                    for j, p in enumerate(self.instance.pods) if p.app == app and p.spread
                    and p.spread[0][2] == app
                    for n in nodes
                )  # fmt: skip
                most = least + skew - self._bound(nodes, app)
                own = alike if app == pods.app else 0
                self.model.add(own <= most).only_enforce_if(self._is_any(k, nodes))


def _may_be(pods: Pods, node: MadeNode) -> bool:
    if node.tainted and not pods.tolerates:
        return False
    return not pods.selector or node.labels.get("disk") == pods.selector


def main() -> None:
    """Answers instances until there are no more."""
    decoder = msgspec.json.Decoder(Instance)
    for line in sys.stdin.buffer:
        answer = Oracle(decoder.decode(line)).answer()
        print("null" if answer is None else str(answer).lower(), flush=True)


if __name__ == "__main__":
    main()
