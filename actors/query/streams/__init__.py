"""SQL that reads the index, one file per stream."""
