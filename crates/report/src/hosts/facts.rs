//! The subject of a recording of hosts, and its figures.

use netplumb_model::hosts::{CLOCKED, is_of_hosts};
use netplumb_model::quantity::{Declared, Quantity, Scalar};
use netplumb_model::recording::{Recording, env};

/// The interface of this machine that was tuned, if it is not a pair of hosts.
pub(super) fn nic_of(recording: &Recording) -> Option<&str> {
    recording.environment.get(env::TUNED_NIC).map(String::as_str)
}

/// Whether blocks are a sample: by this machine's clock.
pub(super) fn varies(recording: &Recording) -> bool {
    recording.instruments() == [CLOCKED]
}

/// What was measured of two hosts, on a wire's clock or this machine's.
pub(super) fn scalars_of<'r>(
    recording: &'r Recording,
    quantity: &Declared,
) -> impl Iterator<Item = &'r Scalar> {
    let (is_its, name) = (|of: &Quantity| is_of_hosts(&of.instrument), quantity.name);
    let mut known = recording.quantities.iter();
    let id = known.position(|of| is_its(of) && of.name == name);
    let scalars = recording.scalars.iter();
    scalars.filter(move |scalar| Some(scalar.quantity as usize) == id)
}
