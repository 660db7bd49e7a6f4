"""Redis without accounting: the event stream, rate limits, permits."""
