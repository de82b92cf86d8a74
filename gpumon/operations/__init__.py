"""What both front ends do with the rooms below."""
