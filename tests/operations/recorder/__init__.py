"""The recorder."""
