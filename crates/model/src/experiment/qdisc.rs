//! A queueing discipline: what `tc qdisc replace dev DEVICE root` takes.

use serde::{Deserialize, Serialize};

use super::within::Within;
use crate::recording::Arm;

/// Longest text that is taken, in characters.
const MAX_CHARACTERS: usize = 400;
/// And in words: each is an argument of `tc`.
const MAX_WORDS: usize = 40;
/// The kernel has room for so many letters of a discipline's name, and a zero
/// (include/net/sch_generic.h: IFNAMSIZ).
const MAX_KIND_CHARACTERS: usize = 15;
/// What every kernel with traffic control has without a module (net/sched/sch_fifo.c,
/// sch_generic.c, sch_mq.c).
const EVERYWHERE: &[&str] = &[
    "pfifo",
    "bfifo",
    "pfifo_head_drop",
    "pfifo_fast",
    "noqueue",
    "mq",
];

/// A queueing discipline and its place, for whoever sets it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Qdisc {
    /// What `tc` is given, word by word; never empty.
    words: Vec<String>,
    /// On whose egress it is.
    pub within: Within,
}

/// As it is kept: one blank between words. What is no blank stays, to be refused.
pub(super) fn normal(text: &str) -> String {
    let words: Vec<&str> = text.split(' ').filter(|w| !w.is_empty()).collect();
    words.join(" ")
}

impl Qdisc {
    /// What an arm's knobs say, if they speak of one.
    pub fn of(arm: &Arm) -> Option<Qdisc> {
        let words: Vec<String> = (arm.knobs.get("qdisc")?)
            .split(' ')
            .filter(|word| !word.is_empty())
            .map(String::from)
            .collect();
        let within = arm.knobs.get("qdisc_in").and_then(|w| w.parse().ok());
        (!words.is_empty()).then_some(Qdisc {
            words,
            within: within.unwrap_or(Within::Tx),
        })
    }

    /// What cannot be run, in a sentence.
    pub(super) fn check(&self, arm: &Arm) -> Result<(), String> {
        if self.within == Within::Router && !arm.forward {
            return Err("qdisc_in = \"router\" needs forward = \"on\"".into());
        }
        let characters: usize = self.words.iter().map(|w| w.chars().count() + 1).sum();
        if characters > MAX_CHARACTERS || self.words.len() > MAX_WORDS {
            return Err(format!(
                "qdisc has {} words, {characters} characters: at most {MAX_WORDS} and {MAX_CHARACTERS}",
                self.words.len(),
            ));
        }
        if !self
            .words
            .iter()
            .flat_map(|w| w.chars())
            .all(|c| c.is_ascii_graphic())
        {
            return Err(
                "qdisc is to be of letters, digits and signs, with blanks between words: another \
                 character is in it"
                    .into(),
            );
        }
        let kind = self.kind();
        let is_name = kind.len() <= MAX_KIND_CHARACTERS
            && kind.starts_with(|c: char| c.is_ascii_lowercase())
            && kind
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
        // What `tc` takes before the name, and what is no egress.
        let others = [
            "dev",
            "root",
            "parent",
            "handle",
            "stab",
            "estimator",
            "help",
        ];
        if !is_name || others.contains(&kind) {
            return Err(format!(
                "qdisc begins with `{}`: it takes what follows `tc qdisc replace dev DEVICE root`, \
                 which begins with the name of a queueing discipline, as in \"netem delay 20us\"",
                kind.chars().take(40).collect::<String>()
            ));
        }
        if ["ingress", "clsact"].contains(&kind) {
            return Err(format!(
                "`{kind}` is no queueing discipline for what is sent: it takes \"fq\", \"netem delay \
                 20us\" and their like"
            ));
        }
        Ok(())
    }

    /// Its name, as the kernel has it.
    pub fn kind(&self) -> &str {
        self.words.first().map_or("", String::as_str)
    }

    /// What `tc` is given.
    pub fn words(&self) -> &[String] {
        &self.words
    }

    /// The kernel's module that it needs; none where every kernel has it.
    pub fn module(&self) -> Option<String> {
        let kind = self.kind();
        (!EVERYWHERE.contains(&kind)).then(|| format!("sch_{kind}"))
    }
}
