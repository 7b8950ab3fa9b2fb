"""How good runs are: measures, significance tests, analyses of what runs find, and plots."""
