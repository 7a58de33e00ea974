"""What is known of a study on a system before anybody has measured it: bounds and published anchors."""
