"""What can be done with an open root, one module per family; `Memory` is made of them."""
