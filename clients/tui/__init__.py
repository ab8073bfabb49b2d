"""The status screen."""
