"""Two runs side by side: config, data, batches, numbers, arrays and machines."""
