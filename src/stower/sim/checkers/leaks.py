"""Law `leaks`: an engine keeps nothing of objects that are gone."""

from typing import Final

from stower.sim.checkers.checker import Checker, rebuild_engine
from stower.sim.tables import BOUNDED, UNBOUNDED, table_sizes

# Entries more than in twice a rebuilt engine's: writes that have just been answered, rows of nodes
# that are gone, kept for others.
MORE_MAX: Final = 100


class Leaks(Checker):
    """At the end, no table of the running engine is larger than the rebuilt engine's: what was
    deleted has left nothing, whatever names it had. Caches with a bound of their own are left out
    (sim/tables.py)."""

    law = "leaks"

    def check_end(self) -> None:
        """Build an engine, and count the entries of both."""
        lived = next((p for p in self.court.schedulers if p.engine is not None), None)
        if lived is None:
            return  # law `restart`
        fresh, _ = rebuild_engine(self.court, self.court.server.list_objects(), lived.now_ns)
        # An array has a place for each row; that there are many is seen in the table of them.
        wanted, found = (table_sizes(e, with_arrays=False) for e in (fresh, lived.engine))
        caches = tuple(BOUNDED)
        for path, size in found.items():
            most = 2 * wanted[path] + MORE_MAX
            is_bounded = path.startswith(caches) and not path.endswith(UNBOUNDED)
            if size > most and not is_bounded:
                raise self.violation(
                    f"{path} of {lived.name} has {size} entries, want at most {most}: a rebuilt "
                    f"engine has {wanted[path]}"
                )
