"""The foundation of all packages: settings, addresses, HTTP, errors, tasks."""
