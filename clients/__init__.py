"""The programs that attach: command line, hook client, MCP bridge, status screen, installers."""
