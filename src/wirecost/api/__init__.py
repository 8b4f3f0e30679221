"""The functions that `import wirecost` offers, with the types of their results."""
