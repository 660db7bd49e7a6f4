"""Coverage-guided fuzzing of the decoders: `make fuzz MINUTES=5`, `make fuzz TARGET=bid`."""
