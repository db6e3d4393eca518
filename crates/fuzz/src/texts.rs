//! Texts.

use netplumb_kernel::config::KernelConfig;
use netplumb_kernel::kallsyms::SymbolTable;
use netplumb_kernel::layers::LayerRules;
use netplumb_kernel::path_rules::PathRules;
use netplumb_model::events::{EventRequest, Ratio};
use netplumb_model::experiment::{Experiment, Knobs};

fn text(data: &[u8]) -> &str {
    std::str::from_utf8(data).unwrap_or_default()
}

pub(crate) fn experiment(data: &[u8]) -> bool {
    Experiment::parse(text(data)).is_ok_and(|experiment| experiment.check().is_ok())
}

pub(crate) fn kallsyms(data: &[u8]) -> bool {
    let Ok(symbols) = SymbolTable::parse(data) else { return false };
    let address = data.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let _ = symbols.lookup(address);
    true
}

pub(crate) fn config(data: &[u8]) -> bool {
    KernelConfig::parse(text(data)).is_ok()
}

pub(crate) fn names(data: &[u8]) -> bool {
    let text = text(data);
    let knob =
        text.split_once('=').is_some_and(|(key, level)| Knobs::default().set(key, level).is_ok());
    let event = EventRequest::parse(text).is_ok();
    Ratio::parse(text).is_ok() || event || knob
}

pub(crate) fn rules(data: &[u8]) -> bool {
    let layers = LayerRules::parse(text(data));
    if let Ok(rules) = &layers {
        let _ = rules.layer("udp_sendmsg", None);
    }
    PathRules::parse(text(data)).is_ok() || layers.is_ok()
}
