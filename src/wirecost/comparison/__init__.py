"""Two runs side by side: breakdowns from wherever they lie, and the experiments of two studies."""
