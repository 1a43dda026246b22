"""The whole experiment: config -> text -> training -> scores."""
