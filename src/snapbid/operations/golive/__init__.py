"""The go-live check: document 2's checklist, judged from an SSP's actual traffic."""
