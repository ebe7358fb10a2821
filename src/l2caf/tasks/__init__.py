"""One file for each thing that a door offers: typed request in, typed result out."""
