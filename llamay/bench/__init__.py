"""How fast a model runs here, where the time goes, and what share of the memory's bandwidth that is."""
