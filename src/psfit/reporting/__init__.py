"""Reports: one HTML page about a fitted model or a path that needs nothing besides itself."""

from psfit.reporting.page import page
from psfit.reporting.report import report, require_page, write_page
from psfit.reporting.samples import DataSummary, describe

__all__ = ["DataSummary", "describe", "page", "report", "require_page", "write_page"]
