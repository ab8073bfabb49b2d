"""Writing hooks and MCP entries into the configuration of each agent, and taking them out again."""
