"""The registered codes, one file for each area."""
