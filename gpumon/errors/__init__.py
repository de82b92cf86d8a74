"""What a log means: the known errors, as text files, and what finds them in a log."""
