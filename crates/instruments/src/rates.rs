//! The `rates` instrument: how busy CPUs were, and where frames went.
//!
//! [`cpu`] tells how busy each CPU was, by two methods that know nothing of each
//! other. [`samples`] tells what they did, by where they were every so often. The counters that the kernel keeps
//! anyway are those of `netplumb_sys::proc::counters`. [`drops`] is for
//! when these do not explain what is missing: programs on tracepoints, which cost
//! something for each packet that is lost, so that they are attached on demand only.

mod accounting;
mod busy;
#[cfg(test)]
mod counted;
pub mod cpu;
pub mod drops;
pub mod samples;
#[cfg(test)]
mod sandbox;

use crate::live::LiveError;

/// What the instrument is called.
const RATES: &str = "rates";

fn system<E>(doing: &str) -> impl FnOnce(E) -> LiveError + '_
where
    E: std::error::Error + Send + Sync + 'static,
{
    move |source| LiveError::System {
        doing: doing.to_string(),
        source: Box::new(source),
    }
}
