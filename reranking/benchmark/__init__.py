"""How fast a ranker reads, compared with other systems and with the limit of the machine."""
