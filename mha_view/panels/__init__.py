"""From finished runs to the parts on a page: a page says what and where, a panel with which numbers."""
