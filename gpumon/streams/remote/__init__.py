"""Frames of another host through ssh."""
