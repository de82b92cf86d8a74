"""The report of a run as a page and as Markdown; both are written from its sections, which are data."""
