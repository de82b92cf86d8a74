"""Widgets that draw lines and send only what changed."""
