"""Analysis of the message-size benchmark: from its records to numbers, verdicts, a table and a figure."""
