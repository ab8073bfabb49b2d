"""The recalld command: one file per family of commands."""
