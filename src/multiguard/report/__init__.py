"""What was proved, for people: figures, tables, and one page to send round. Never imports torch."""

from multiguard.report.figures import draw_figures
from multiguard.report.page.write import write_page
from multiguard.report.study import Study
from multiguard.report.tables import write_tables

__all__ = ["Study", "draw_figures", "write_page", "write_tables"]
