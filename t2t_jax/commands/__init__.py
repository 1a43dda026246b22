"""The commands, one thin file each: flags in, one call, text out."""
