"""What was proved, for people: figures, tables, and one page to send round. Never imports torch."""

from multiguard.report.figures import draw_figures
from multiguard.report.page.write import check_gallery, write_page
from multiguard.report.study import Study
from multiguard.report.tables import write_tables
from multiguard.report.tradeoff import draw_tradeoff

__all__ = ["Study", "check_gallery", "draw_figures", "draw_tradeoff", "write_page", "write_tables"]
