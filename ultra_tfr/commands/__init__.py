"""The commands of `ultra-tfr`, one module each."""
