"""What is left of the jobs."""
