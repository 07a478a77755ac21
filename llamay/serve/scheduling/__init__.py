"""Who takes part in the next step: admission, batches of rows, submissions on their way."""
