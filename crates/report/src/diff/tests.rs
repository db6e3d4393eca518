//! Comparisons of small recordings made by hand.

mod architectures;
mod below;
mod build;
mod labels;
mod matching;
mod properties;
pub(crate) mod renderings;
mod rules;
mod same;
mod views;
mod wholes;
