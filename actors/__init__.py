"""The processes: one package each, and what they share (base, mailbox, lifecycle, health)."""
