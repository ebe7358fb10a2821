"""While a network learns: where it looks in its validation pictures, epoch by epoch."""
