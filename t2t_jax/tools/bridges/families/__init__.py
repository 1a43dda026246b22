"""Model families of other systems: their configs and weights, read as ours."""
