"""What is fine on this machine and what is not, and what to do about it.

`machine.py` alone looks at the machine and writes down facts; the checks judge them and look at
nothing, so that any fault can be planted beneath them.
"""

from opdb.doctor.checks import Finding, examine, works
from opdb.doctor.machine import Facts, gather

__all__ = ["Facts", "Finding", "examine", "gather", "works"]
