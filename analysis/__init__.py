"""Analysis from records to numbers, tables and figures. The package imports nothing; only its modules do."""
