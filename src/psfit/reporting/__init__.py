"""Reports: one HTML page about a fitted model or a path; it needs no other file."""

from psfit.reporting.page import render_page
from psfit.reporting.report import report, require_page, write_page
from psfit.reporting.samples import DataSummary, describe

__all__ = ["DataSummary", "describe", "render_page", "report", "require_page", "write_page"]
