"""Files: typed records, atomic writes, checksums, locks, names, and the rank of this process."""
