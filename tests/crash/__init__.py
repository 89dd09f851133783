"""Kill, full disk, held lock: nothing acknowledged is ever missing."""
