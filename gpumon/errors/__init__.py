"""What a log means: the known errors, as text files, and the code that finds them in a log."""
