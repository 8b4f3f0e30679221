"""The page of a search: a scatter of all plans, filters, and the explanation of any two."""

from wirecost.planner.page.write import render_page, write_page

__all__ = ["render_page", "write_page"]
