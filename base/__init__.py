"""What every other folder stands on: errors, files, definitions read from TOML, quantities."""
