"""From hook payloads to sessions, pages, handoffs and briefings. Pure."""
