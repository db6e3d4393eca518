//! Comparisons of small recordings made by hand.

mod build;
mod properties;
mod renderings;
mod rules;
