"""Reading, generating and labelling ranking data."""
