"""The same checks with other libraries, to compare with; none of it is part of the product."""
