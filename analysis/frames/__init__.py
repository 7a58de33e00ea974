"""From records to answers, on pandas frames."""
