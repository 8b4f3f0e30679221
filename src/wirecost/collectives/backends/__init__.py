"""Communication libraries behind one interface; each is imported only where it is used."""
