//! Pure mathematics of measurements: histograms, quantiles, intervals, verdicts.
//! Knows nothing of kernels or packets.
