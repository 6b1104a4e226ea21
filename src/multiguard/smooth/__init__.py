"""The smooth room."""
