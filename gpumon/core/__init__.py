"""What every room speaks: records, metrics, problems, history and the frame codec. Standard library only."""
