"""From a question to a plan: studies, the sizes of a scaling curve, cells, cases and launches."""
