"""One pipeline: from a problem and data to a result, for a fit, a path of limits and subsamples."""
