"""The index seam: rows and what is asked of them (`corpus`), how they are kept (`rows`), and filters."""
