"""Changes of what a search may generate, which few searches ask for."""
