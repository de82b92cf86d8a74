"""Drawing primitives: pure functions from values to lines, tested without an app."""
