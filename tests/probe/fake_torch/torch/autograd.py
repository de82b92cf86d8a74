"""Another part of it."""
