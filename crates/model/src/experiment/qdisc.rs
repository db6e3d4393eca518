//! A qdisc: the arguments of `tc qdisc replace dev DEV root`.

use serde::{Deserialize, Serialize};

use super::within::Within;
use crate::recording::Arm;

/// Maximum length of the text, in characters.
const MAX_CHARACTERS: usize = 400;
/// Maximum number of words: each is an argument of `tc`.
const MAX_WORDS: usize = 40;
/// Maximum length of the name of a qdisc
/// (include/net/sch_generic.h: IFNAMSIZ).
const MAX_KIND_CHARACTERS: usize = 15;
/// Qdiscs that every kernel with traffic control has without a module (net/sched/sch_fifo.c,
/// sch_generic.c, sch_mq.c).
const EVERYWHERE: &[&str] = &["pfifo", "bfifo", "pfifo_head_drop", "pfifo_fast", "noqueue", "mq"];

/// A qdisc and where to attach it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Qdisc {
    /// The arguments of `tc`; never empty.
    words: Vec<String>,
    /// The host whose egress it is for.
    pub within: Within,
}

/// Normal form: one space between words. Other white space stays, and is an error.
pub(super) fn normal(text: &str) -> String {
    let words: Vec<&str> = text.split(' ').filter(|w| !w.is_empty()).collect();
    words.join(" ")
}

impl Qdisc {
    /// The qdisc of an arm, if it has one.
    pub fn from_arm(arm: &Arm) -> Option<Qdisc> {
        let qdisc = Qdisc::from_words(arm.knobs.get("qdisc")?)?;
        let within = arm.knobs.get("qdisc_in").and_then(|w| w.parse().ok());
        Some(Qdisc { within: within.unwrap_or(Within::Tx), ..qdisc })
    }

    /// A qdisc by the arguments of `tc`; none without words.
    pub fn from_words(text: &str) -> Option<Qdisc> {
        let words = text.split(' ').filter(|word| !word.is_empty()).map(String::from);
        let words: Vec<String> = words.collect();
        (!words.is_empty()).then_some(Qdisc { words, within: Within::Tx })
    }

    /// Check that it is a root qdisc.
    pub(super) fn check(&self) -> Result<(), String> {
        let characters: usize = self.words.iter().map(|w| w.chars().count() + 1).sum();
        if characters > MAX_CHARACTERS || self.words.len() > MAX_WORDS {
            return Err(format!(
                "qdisc is too long ({} words, {characters} characters); expected at most \
                 {MAX_WORDS} and {MAX_CHARACTERS}",
                self.words.len(),
            ));
        }
        if !self.words.iter().flat_map(|w| w.chars()).all(|c| c.is_ascii_graphic()) {
            return Err(
                "invalid character in qdisc; expected printable ASCII with spaces between words"
                    .into(),
            );
        }
        let kind = self.kind();
        let is_name = kind.len() <= MAX_KIND_CHARACTERS
            && kind.starts_with(|c: char| c.is_ascii_lowercase())
            && kind.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
        // Arguments that `tc` takes before the name.
        let others = ["dev", "root", "parent", "handle", "stab", "estimator", "help"];
        if !is_name || others.contains(&kind) {
            return Err(format!(
                "invalid qdisc name `{}`; expected the arguments after `tc qdisc replace dev DEV \
                 root`, like \"netem delay 20us\"",
                kind.chars().take(40).collect::<String>()
            ));
        }
        if ["ingress", "clsact"].contains(&kind) {
            return Err(format!(
                "qdisc `{kind}` is not supported on egress; expected like \"fq\" or \"netem delay \
                 20us\""
            ));
        }
        Ok(())
    }

    /// Its name in the kernel.
    pub fn kind(&self) -> &str {
        self.words.first().map_or("", String::as_str)
    }

    /// The arguments of `tc`.
    pub fn words(&self) -> &[String] {
        &self.words
    }

    /// The qdisc's kernel module; none if every kernel has it built in.
    pub fn module(&self) -> Option<String> {
        let kind = self.kind();
        (!EVERYWHERE.contains(&kind)).then(|| format!("sch_{kind}"))
    }
}
