"""From records to numbers, tables and figures. Importing the package costs nothing, only its modules do."""
