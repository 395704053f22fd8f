"""The report: one HTML file that says whether draws can be trusted, and shows why."""

from involutive.report.page import write_report

__all__ = ["write_report"]
