"""Plain text for the command line: pure functions from values to lines, without colors and without a cursor."""
