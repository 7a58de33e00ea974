"""From the records of the message-size benchmark to numbers, verdicts, a table and a figure."""
