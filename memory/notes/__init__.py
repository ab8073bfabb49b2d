"""Notes as text: frontmatter, links, chunks, and the diff between two states of a folder. Pure."""
