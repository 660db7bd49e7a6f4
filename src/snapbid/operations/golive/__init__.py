"""Is an SSP ready to go live? Document 2's checklist, judged from what it has really sent."""
