//! Comparisons of small recordings made by hand.

mod build;
mod matching;
mod properties;
mod renderings;
mod rules;
