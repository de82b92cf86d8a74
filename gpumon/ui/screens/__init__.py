"""What fills the terminal: the overview, one device in detail, help."""
