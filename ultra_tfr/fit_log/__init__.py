"""A trained click log: fitting, judging and reporting."""
