"""The ground for every other folder: errors, files, definitions read from TOML, quantities."""
