"""From a question and what the streams found to one ranking. Pure."""
