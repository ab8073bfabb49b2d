"""What crosses a socket: messages, envelopes, framing, connection, client, server. Imports nothing from the rest."""
