"""What is fine on this machine and what is not, and what to do about it.

`machine.py` alone looks at the machine and writes down facts; the checks judge them and look at
nothing, so that any fault can be planted beneath them.
"""

from opdb.doctor.checks import examine, works
from opdb.doctor.facts import Facts
from opdb.doctor.finding import Finding
from opdb.doctor.machine import gather
from opdb.doctor.report import Diagnosis

__all__ = ["Diagnosis", "Facts", "Finding", "diagnose", "examine", "gather", "works"]


def diagnose(db: str | None = None) -> Diagnosis:
    """Check what measuring needs on this machine, and in the database `db` (a file or URL)."""
    facts = gather(db)
    return Diagnosis(facts, examine(facts))
