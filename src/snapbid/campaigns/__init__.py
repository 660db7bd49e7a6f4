"""Campaigns: their documents, rules, markup and import (contract 2 and 3)."""
