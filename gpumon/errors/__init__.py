"""What a log means: the known errors, as text files that anybody can edit, and what finds them in a log."""
