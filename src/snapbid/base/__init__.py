"""What every room stands on: settings, addresses, HTTP, errors, tasks."""
