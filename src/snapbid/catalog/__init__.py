"""The catalog: the immutable campaign index, its builder, matcher and publisher (contract 3)."""
