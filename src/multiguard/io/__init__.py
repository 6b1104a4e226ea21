"""Files: typed records, atomic writes, checksums, locks."""
