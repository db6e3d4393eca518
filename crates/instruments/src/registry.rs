//! The list of instruments, used by `--clock`, `plumb doctor`, help and experiments.

use std::sync::atomic::AtomicBool;

use netplumb_model::timing::TimingSpec;

use crate::instrument::{Instrument, Layers};
use crate::live::{Live, LiveError};

/// All instruments, in the order in which help and `plumb doctor` list them.
pub static ALL: [&dyn Instrument; 10] = [
    crate::exact::INSTRUMENT,
    crate::functions::INSTRUMENT,
    crate::stages::INSTRUMENT,
    crate::samples::INSTRUMENT,
    crate::events::INSTRUMENT,
    crate::spans::INSTRUMENT,
    crate::calls::INSTRUMENT,
    crate::rates::INSTRUMENT,
    crate::wire::INSTRUMENT,
    crate::sockets::INSTRUMENT,
];

/// Instruments for the running kernel if plumb chooses, in order of preference.
pub static PREFERRED: [&dyn Instrument; 2] =
    [crate::functions::INSTRUMENT, crate::stages::INSTRUMENT];

/// The instrument that shows where CPU time goes, beside rates.
pub static BESIDE_RATES: &dyn Instrument = crate::samples::INSTRUMENT;

/// Find an instrument by name.
pub fn find(name: &str) -> Option<&'static dyn Instrument> {
    ALL.into_iter().find(|instrument| instrument.name() == name)
}

/// Attach the instrument that a spec names.
///
/// # Errors
/// The name is unknown, or it can't be attached here, or not with these settings.
pub fn attach(spec: &TimingSpec, layers: &Layers<'_>) -> Result<Box<dyn Live>, LiveError> {
    match find(&spec.instrument) {
        Some(instrument) => instrument.attach(spec, layers, &AtomicBool::new(false)),
        None => Err(LiveError::Asked(format!(
            "no such instrument `{}`; expected one of {}",
            spec.instrument,
            ALL.map(Instrument::name).join(", ")
        ))),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Check that every instrument is found by its name, which its quantities share, and that
    /// quantities are unique.
    #[test]
    fn each_is_declared_once() {
        let mut names = BTreeSet::new();
        let mut quantities = BTreeSet::new();
        for instrument in ALL {
            let name = instrument.name();
            assert!(names.insert(name));
            assert_eq!(find(name).map(Instrument::name), Some(name));
            assert!(!instrument.about().is_empty());
            assert!(!instrument.quantities().is_empty(), "{name}");
            for quantity in instrument.quantities() {
                assert!(quantities.insert((quantity.instrument, quantity.name)));
            }
        }
        assert!(find("auto").is_none());
    }

    /// Check that instruments that can't be attached to a running kernel have errors with their own
    /// names.
    #[test]
    fn those_of_no_running_kernel() {
        for name in ["exact", "rates", "wire", "sockets", "nothing"] {
            let spec = TimingSpec { instrument: name.into(), ..TimingSpec::default() };
            let error = attach(&spec, &|_, _| None).unwrap_err().to_string();
            assert!(error.contains(&format!("`{name}`")), "{error}");
        }
    }
}
