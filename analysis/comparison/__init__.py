"""Whether two sets of records may be compared, and what differs between them."""
