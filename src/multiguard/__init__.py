"""Provable robustness for any multi-label classifier."""

__version__ = "0.1.0.dev0"
