"""The page: one HTML file that opens offline, from a template, a style sheet and scripts that lie here."""
