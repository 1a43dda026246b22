"""References that share no code with the program: float64 twins, brute-force search."""
