"""What a filter is asked to do, as losses on the network's filtered output."""
