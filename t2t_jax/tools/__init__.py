"""Tools that read finished workdirs. Each could be removed: nothing else imports it."""
