"""Systems: machines as their TOML files describe them, the check of these files, and drafts of new ones."""
