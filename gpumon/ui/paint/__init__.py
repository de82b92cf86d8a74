"""Values to lines: pure functions, tested without an app."""
