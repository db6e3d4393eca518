//! Pure mathematics of measurements: histograms, quantiles, intervals, verdicts.
//! Knows nothing of kernels or packets.
//!
//! The unit of every statistic is the block, one measured repetition: samples
//! within a block share what the machine was doing then, so their number says
//! nothing of how far off they are together.

pub mod drift;
pub mod fdr;
pub mod histogram;
pub mod judge;
pub mod ratio;
pub mod search;
pub mod welch;

#[cfg(test)]
mod simulated;
