"""Jobs: which launches a scheduler's job runs, its script, its submission, and what runs inside it."""
