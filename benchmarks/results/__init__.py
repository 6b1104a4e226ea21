"""The tables and figures of docs/results.md, made from run folders: `python -m benchmarks.results --help`."""
