"""Pure functions of text, which know no tokenizer: languages, aligned words."""
