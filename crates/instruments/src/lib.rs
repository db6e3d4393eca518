//! instruments
