"""The bid endpoint and its notices (document 2)."""
