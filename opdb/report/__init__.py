"""A report: one HTML page of what a database knows, made from the database alone.

`content` gathers it: `runs` has the parts of each run's time and energy, `coverage` what is
missing, `roofs` the roofline, `samples` raw visits. `html` writes tables, and `page` puts all into
one file that needs no network.
"""

from opdb.report.content import Asked, Content, gather
from opdb.report.page import page

__all__ = ["Asked", "Content", "gather", "page"]
