"""Commands of the command line, one module each; what they need is imported when they run."""
