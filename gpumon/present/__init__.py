"""What screens and plain-text reports show: values in, lines out. The only room in which a value becomes text."""
