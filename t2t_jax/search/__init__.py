"""Search algorithms: pure functions over any step function; they know no model."""
