"""Text that is damaged, and text of which parts must survive a translation."""
