"""What travels with a checkpoint."""
