"""Heat as pictures: arrays and Pillow images in, Pillow images out. No networks, no torch."""
