"""The doctor: gathers the facts that it judges by, each with a deadline of its own, and packs what it found."""
