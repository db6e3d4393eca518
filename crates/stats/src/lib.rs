//! Pure mathematics of measurements: histograms, quantiles, intervals, verdicts.
//! Knows nothing of kernels or packets.
//!
//! The unit of every statistic is the block, one measured repetition: samples within a block share the state of the
//! machine, so their number is no measure of their common error, only of its lower bound.

pub mod counts;
pub mod drift;
pub mod fdr;
pub mod halving;
pub mod histogram;
pub mod judge;
pub mod ratio;
pub mod search;
mod student;
pub mod trend;
pub mod welch;

#[cfg(test)]
mod profiled;
#[cfg(test)]
mod sampled;
#[cfg(test)]
mod simulated;
#[cfg(test)]
mod total;
