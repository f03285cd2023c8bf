"""A finished corpus to look around in: pages in a browser, and search by phrases and words."""
