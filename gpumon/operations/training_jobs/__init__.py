"""Training jobs of this host and of others: their state, their ranks, and whether they hang."""
