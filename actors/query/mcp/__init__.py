"""MCP sessions inside the query actor. The only package that imports the MCP SDK."""
