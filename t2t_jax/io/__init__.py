"""Output for the user: messages, progress, and errors that a user can mend."""
