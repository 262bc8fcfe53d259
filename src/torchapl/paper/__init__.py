"""The 2015 experiments; the core never imports from here."""
