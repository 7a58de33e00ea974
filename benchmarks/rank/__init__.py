"""What runs on every rank of a launch: connect, pass the gates, measure, spool."""
