//! Arms without the instrument, and what killed runs left behind.

use netplumb_instruments::calls;
use netplumb_lab::netns::names;
use netplumb_model::experiment::Load;
use netplumb_model::recording::Arm;

/// The knob of an arm without the instrument, and its level.
pub const PROBES_OFF: (&str, &str) = ("probes", "off");

/// How packets are sent.
pub(crate) fn load(stream: bool) -> Load {
    match stream {
        true => Load::Stream,
        false => Load::OneAtATime,
    }
}

/// The same arms without the instrument. They come after the others, since they only have figures
/// of the workload.
pub(crate) fn without_probes(arms: &[Arm]) -> Vec<Arm> {
    let bare = |arm: &Arm| {
        let mut bare = arm.clone();
        bare.name = format!("{} {}={}", arm.name, PROBES_OFF.0, PROBES_OFF.1);
        bare.knobs.insert(PROBES_OFF.0.into(), PROBES_OFF.1.into());
        bare
    };
    arms.iter().map(bare).collect()
}

/// Delete the namespaces that killed runs left on this machine, and restore the settings that they changed.
pub fn clean_up(note: &mut dyn FnMut(String)) {
    match names::sweep() {
        Ok(removed) if removed.is_empty() => {}
        Ok(removed) => note(format!("cleaned up after a killed run: {}", removed.join(", "))),
        Err(error) => note(format!("can't clean up after a killed run: {error}")),
    }
    recover(note);
}

/// Restore settings that a killed run changed on this machine.
pub(crate) fn recover(note: &mut dyn FnMut(String)) {
    for what in calls::recover() {
        note(format!("restored settings left by a killed run: {what}"));
    }
    match netplumb_knobs::recover() {
        Ok(recovered) => {
            for what in recovered.put_back {
                note(format!("restored settings left by a killed run: {what}"));
            }
            for what in recovered.left {
                note(format!("not restored after a killed run: {what}"));
            }
        }
        Err(error) => note(format!("can't restore settings left by a killed run: {error}")),
    }
}
