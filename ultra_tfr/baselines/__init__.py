"""The methods that others propose, as losses with tables of their own."""
