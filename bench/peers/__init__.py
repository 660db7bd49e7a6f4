"""The same checks with other libraries, for comparison; none of this is part of the product."""
