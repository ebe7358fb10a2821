"""Training of networks. Losses and miners are a library's, and so are devices and processes; recipes/ joins them."""
