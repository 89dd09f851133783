"""The command line, HTTP and MCP: thin translations of the table of operations."""
