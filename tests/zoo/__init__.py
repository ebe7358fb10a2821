"""120 networks and a judge from outside: is the map that `l2caf.explain` gives a map of the input, or is it refused?"""
