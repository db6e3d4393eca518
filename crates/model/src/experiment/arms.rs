//! The arms of an experiment: its file's and its figures'.

use std::collections::BTreeSet;

use super::{Experiment, Figure, Kind, Knobs, MAX_ARMS, Nft, Vary};
use crate::arch::Arch;
use crate::bench::BenchArm;
use crate::recording::Arm;

const MODULE: &str = "module";
const TOPOLOGY: &str = "topology";

/// The kernel of an arm's guest, as the arm sets it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ArmKernel {
    /// Its name in the catalogue.
    pub name: String,
    /// Its architecture; none if that is the kernel's own affair.
    pub arch: Option<Arch>,
}

impl ArmKernel {
    /// The kernel of an arm.
    pub fn from_arm(arm: &Arm) -> Self {
        let knob = |key: &str| arm.knobs.get(key).map_or("", String::as_str);
        ArmKernel { name: knob("kernel").to_owned(), arch: Arch::named(knob("arch")) }
    }
}

impl Knobs {
    /// The arm with these settings, for frames.
    ///
    /// # Errors
    /// See [`BenchArm::from_levels`].
    pub fn bench_arm(&self) -> Result<BenchArm, (&'static str, String)> {
        BenchArm::from_levels(&|key| self.level(key))
    }
}

impl Experiment {
    /// All settings that are written out.
    fn all_knobs_mut(&mut self) -> (Vec<&mut Knobs>, Vec<&mut Vary>) {
        let mut knobs = vec![&mut self.knobs];
        let mut vary = vec![&mut self.vary];
        knobs.extend(self.arms.iter_mut().map(|arm| &mut arm.knobs));
        for figure in &mut self.figures {
            knobs.push(&mut figure.knobs);
            vary.push(&mut figure.vary);
        }
        (knobs, vary)
    }

    /// Every place that may name a file of rules, to be read.
    pub fn rulesets_mut(&mut self) -> impl Iterator<Item = &mut Nft> {
        let (knobs, vary) = self.all_knobs_mut();
        let fixed = knobs.into_iter().flat_map(Knobs::rules_mut);
        fixed.chain(vary.into_iter().flat_map(Vary::rules_mut))
    }

    /// Every place that may name a module's file, with the kernels of the arms that it may be for.
    pub fn modules_mut(&mut self) -> Vec<(BTreeSet<ArmKernel>, &mut String)> {
        let all: BTreeSet<ArmKernel> = self.arms().iter().map(ArmKernel::from_arm).collect();
        let of_named: Vec<ArmKernel> = (self.arms.iter())
            .map(|named| {
                ArmKernel::from_arm(&self.arm_of(named.knobs.over(&self.knobs), String::new()))
            })
            .collect();
        let mut places = Vec::new();
        places.extend(self.knobs.text_mut(MODULE).map(|text| (all.clone(), text)));
        for (named, kernel) in self.arms.iter_mut().zip(of_named) {
            let text = named.knobs.text_mut(MODULE);
            places.extend(text.map(|text| (BTreeSet::from([kernel]), text)));
        }
        let mut vary = vec![&mut self.vary];
        for figure in &mut self.figures {
            let text = figure.knobs.text_mut(MODULE);
            places.extend(text.map(|text| (all.clone(), text)));
            vary.push(&mut figure.vary);
        }
        let varied = vary.into_iter().flat_map(|vary| vary.texts_mut(MODULE));
        places.extend(varied.map(|text| (all.clone(), text)));
        places
    }

    /// Every level of the knob `topology`, which may name a file to be read.
    pub fn topology_levels_mut(&mut self) -> impl Iterator<Item = &mut String> {
        let (knobs, vary) = self.all_knobs_mut();
        let fixed = knobs.into_iter().filter_map(|knobs| knobs.text_mut(TOPOLOGY));
        fixed.chain(vary.into_iter().flat_map(|vary| vary.texts_mut(TOPOLOGY)))
    }

    /// Every file of a BPF program with its program, and the knob that names it.
    pub fn objects_mut(&mut self) -> impl Iterator<Item = (&'static str, &mut String)> {
        let (knobs, vary) = self.all_knobs_mut();
        let fixed = knobs.into_iter().flat_map(Knobs::objects_mut);
        fixed.chain(vary.into_iter().flat_map(Vary::objects_mut))
    }

    /// Whether there are arms beside the figures' own: where a figure shows them, or no figure exists, or they are
    /// written out.
    fn has_arms(&self) -> bool {
        let shown = self.figures.is_empty() || self.figures.iter().any(|f| !f.has_arms());
        shown || !self.arms.is_empty()
    }

    /// The fixed and varied knobs of a figure; what the file varies is included, unless the figure
    /// fixes it.
    fn sweep(&self, figure: &Figure) -> (Knobs, Vary) {
        let fixed = figure.knobs.over(&self.knobs);
        let vary = figure.vary.over(&self.vary.without(&figure.knobs));
        (fixed, vary)
    }

    /// The arms, each with every knob set: the file's arms, then the arms that only figures have.
    pub fn arms(&self) -> Vec<Arm> {
        if self.workload.kind == Kind::Frames {
            let all = self.named_bench_arms().unwrap_or_default();
            return all.into_iter().map(|(arm, _)| arm).collect();
        }
        match self.workload.kind {
            Kind::Traffic => return Vec::new(),
            // Nothing can be set: the data path is measured as it is.
            Kind::Work if !self.has_knobs() => return Vec::new(),
            _ => {}
        }
        let mut arms = match self.has_arms() {
            true => self.own_arms(),
            false => Vec::new(),
        };
        let same = |one: &Arm, other: &Arm| {
            let name = String::new();
            let unnamed = Arm { name, ..one.clone() };
            unnamed == Arm { name: String::new(), ..other.clone() }
        };
        for figure in self.figures.iter().filter(|figure| figure.has_arms()) {
            for mut arm in self.made(&self.sweep(figure)) {
                if arms.iter().any(|known| same(known, &arm)) {
                    continue;
                }
                // Another figure has an arm of this name with other settings.
                if arms.iter().any(|known| known.name == arm.name) {
                    arm.name = format!("{}: {}", figure.name, arm.name);
                }
                arms.push(arm);
            }
        }
        arms
    }

    fn own_arms(&self) -> Vec<Arm> {
        let mut arms = Vec::new();
        if self.arms.is_empty() || !self.vary.is_empty() {
            arms = self.made(&(self.knobs.clone(), self.vary.clone()));
        }
        for named in &self.arms {
            let knobs = named.knobs.over(&self.knobs);
            arms.push(self.arm_of(knobs, named.name.clone()));
        }
        arms
    }

    fn made(&self, (fixed, vary): &(Knobs, Vary)) -> Vec<Arm> {
        let combinations = vary.combinations(MAX_ARMS).into_iter();
        combinations.map(|made| self.arm_of(made.over(fixed), vary.describe(&made))).collect()
    }

    /// The arms of a figure, with their names among all arms.
    pub fn arms_of(&self, figure: &Figure) -> Vec<Arm> {
        if self.workload.kind == Kind::Frames {
            let all = self.named_bench_arms().unwrap_or_default();
            let arms = self.bench_arms_of(figure).unwrap_or_default();
            let known = |arm: &BenchArm| all.iter().find(|(_, known)| known == arm);
            return (arms.iter().filter_map(known)).map(|(arm, _)| arm.clone()).collect();
        }
        if !figure.has_arms() {
            return self.own_arms();
        }
        let known = self.arms();
        let same =
            |one: &Arm, other: &Arm| Arm { name: other.name.clone(), ..one.clone() } == *other;
        let made = self.made(&self.sweep(figure)).into_iter();
        made.filter_map(|arm| known.iter().find(|known| same(&arm, known)).cloned()).collect()
    }

    /// The arms of frames, without duplicates.
    ///
    /// # Errors
    /// The knob, and what is wrong with its level.
    pub fn bench_arms(&self) -> Result<Vec<BenchArm>, (&'static str, String)> {
        let named = self.named_bench_arms()?;
        Ok(named.into_iter().map(|(_, arm)| arm).collect())
    }

    /// The arms of frames, each with its arm in the recording. Arms of `[[arm]]` have their own names, the others are
    /// named after their levels.
    fn named_bench_arms(&self) -> Result<Vec<(Arm, BenchArm)>, (&'static str, String)> {
        let mut arms = self.own_bench_arms()?;
        for figure in self.figures.iter().filter(|figure| figure.has_arms()) {
            for arm in bench_arms(&self.sweep(figure))? {
                if !arms.iter().any(|(_, known)| *known == arm) {
                    arms.push((None, arm));
                }
            }
        }
        let all: Vec<BenchArm> = arms.iter().map(|(_, arm)| *arm).collect();
        let named = arms.into_iter().map(|(name, arm)| {
            let mut recorded = arm.arm(&all);
            if let Some(name) = name {
                recorded.name = name.into();
            }
            (recorded, arm)
        });
        Ok(named.collect())
    }

    /// The arms of frames that belong to no figure, with their names if they have any. Duplicate
    /// levels count once.
    fn own_bench_arms(&self) -> Result<Vec<OwnBenchArm<'_>>, (&'static str, String)> {
        let mut named = Vec::new();
        for arm in &self.arms {
            let made = arm.knobs.over(&self.knobs).bench_arm()?;
            named.push((Some(arm.name.as_str()), made));
        }
        let mut arms: Vec<(Option<&str>, BenchArm)> = Vec::new();
        if self.has_arms() && (self.arms.is_empty() || !self.vary.is_empty()) {
            for arm in bench_arms(&(self.knobs.clone(), self.vary.clone()))? {
                let mut known = arms.iter().chain(&named);
                if !known.any(|(_, known)| *known == arm) {
                    arms.push((None, arm));
                }
            }
        }
        arms.extend(named);
        Ok(arms)
    }

    /// The arms of a figure.
    ///
    /// # Errors
    /// As [`Experiment::bench_arms`].
    pub fn bench_arms_of(&self, figure: &Figure) -> Result<Vec<BenchArm>, (&'static str, String)> {
        match figure.has_arms() || self.arms.is_empty() {
            true => bench_arms(&self.sweep(figure)),
            // It shows the arms that belong to no figure.
            false => Ok((self.own_bench_arms()?.into_iter()).map(|(_, arm)| arm).collect()),
        }
    }
}

/// An arm of frames, with its name if it has one.
type OwnBenchArm<'e> = (Option<&'e str>, BenchArm);

fn bench_arms((fixed, vary): &(Knobs, Vary)) -> Result<Vec<BenchArm>, (&'static str, String)> {
    let combinations = vary.combinations(MAX_ARMS).into_iter();
    combinations.map(|made| made.over(fixed).bench_arm()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a module is for the kernel of its own arm, and a module set for all arms for the kernels of all.
    #[test]
    fn kernels_of_modules() {
        let of = |text: &str| {
            let text = format!("name = \"x\"\n{text}");
            let mut experiment = Experiment::parse(&text).unwrap();
            let places = experiment.modules_mut();
            let arches = |kernels: BTreeSet<ArmKernel>| -> Vec<Option<Arch>> {
                assert!(kernels.iter().all(|kernel| kernel.name == "debian"));
                kernels.into_iter().map(|kernel| kernel.arch).collect()
            };
            let all = places.into_iter();
            all.map(|(kernels, text)| (arches(kernels), text.clone())).collect::<Vec<_>>()
        };
        let both = "[[arm]]\nname = \"a\"\nknobs = { module = \"usbnet\" }\n\
                    [[arm]]\nname = \"b\"\nknobs = { arch = \"arm64\", module = \"usbnet+a.patch\" }\n";
        let (own, arm64) = (vec![None], vec![Some(Arch::Arm64)]);
        let expected =
            [(own.clone(), "usbnet".to_owned()), (arm64.clone(), "usbnet+a.patch".to_owned())];
        assert_eq!(of(both), expected);
        // The arm's own settings take precedence over the common ones.
        let inherited = format!("[knobs]\narch = \"arm64\"\n{both}");
        assert_eq!(of(&inherited)[0].0, arm64);
        let set = "[knobs]\nmodule = \"usbnet\"\n[vary]\narch = [\"x86-64\", \"arm64\"]\n";
        assert_eq!(of(set)[0].0, [Some(Arch::X86_64), Some(Arch::Arm64)]);
    }
}
