//! Claims about the outcome, and what others published.

use serde::{Deserialize, Serialize};

use super::{Experiment, Kind, Knobs};
use crate::bench::DataPath;
use crate::class::{Class, words};

words! {
    /// How an arm's cost is to stand to another's.
    Relation, "relation",
    /// It is smaller.
    Less = "less",
    /// It is larger.
    More = "more",
    /// It is the same: to the instruction, or as far as blocks can tell.
    Same = "same",
    /// It is not.
    Different = "different",
}

/// What somebody published for one class, in their unit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// The class that it is about ("raw tx").
    pub class: Class,
    /// Where it stands ("3a").
    pub figure: String,
    /// The layer's total, microseconds.
    pub total_us: f64,
    /// The function that took most.
    pub top_function: String,
    /// What that took, microseconds.
    pub top_us: f64,
}

/// Declares the kinds, each with what all have.
macro_rules! claims {
    ($($(#[$doc:meta])* $kind:ident { $($(#[$of_field:meta])* $field:ident: $type:ty,)* })*) => {
        /// A statement that the data bear out or don't.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
        pub enum Claim {
            $($(#[$doc])* $kind {
                /// What the conclusion calls it.
                #[serde(default)]
                name: Option<String>,
                /// The statement.
                says: String,
                /// The quantity; none for the instrument's first.
                #[serde(default)]
                quantity: Option<String>,
                $($(#[$of_field])* $field: $type,)*
            },)*
        }

        impl Claim {
            /// The statement.
            pub fn says(&self) -> &str {
                match self { $(Claim::$kind { says, .. } => says,)* }
            }

            /// What the conclusion calls it.
            pub fn name(&self) -> Option<&str> {
                match self { $(Claim::$kind { name, .. } => name,)* }.as_deref()
            }

            /// The quantity that it is about, where it is not the instrument's first.
            pub fn quantity(&self) -> Option<&str> {
                match self { $(Claim::$kind { quantity, .. } => quantity,)* }.as_deref()
            }
        }
    };
}

claims! {
    /// A layer costs nearly the same in every class: largest over smallest is
    /// at most `within_ratio`.
    Alike {
        /// The layer.
        layer: String,
        /// The classes.
        #[serde(default)]
        classes: Vec<Class>,
        /// The largest ratio that still counts as alike.
        within_ratio: f64,
        /// The arm; none for the first that has the class.
        #[serde(default)]
        arm: Option<String>,
    }
    /// A layer's cost differs between classes: largest over smallest is more
    /// than `beyond_ratio`.
    Unlike {
        /// The layer.
        layer: String,
        /// The classes.
        #[serde(default)]
        classes: Vec<Class>,
        /// The ratio that has to be passed.
        beyond_ratio: f64,
        /// The arm; none for the first that has the class.
        #[serde(default)]
        arm: Option<String>,
    }
    /// In every class, the layers of `of` together cost at most `within_ratio` of
    /// what those of `than` do.
    Smaller {
        /// The layers held to be small.
        of: Vec<String>,
        /// The layers held to be large.
        than: Vec<String>,
        /// The largest share of these that is still small: at most 1.
        within_ratio: f64,
        /// The classes.
        #[serde(default)]
        classes: Vec<Class>,
        /// The arm; none for the first that has the class.
        #[serde(default)]
        arm: Option<String>,
    }
    /// The function that costs most of a layer, in each class: asked, not held.
    Bottleneck {
        /// The layer; none for the whole path.
        #[serde(default)]
        layer: Option<String>,
        /// The classes.
        #[serde(default)]
        classes: Vec<Class>,
        /// The arm; none for the first that has the class.
        #[serde(default)]
        arm: Option<String>,
    }
    /// Over arms that differ in a knob that is a number, the cost is a line: a
    /// fixed part, and a part for each unit of the knob.
    Linear {
        /// The classes.
        #[serde(default)]
        classes: Vec<Class>,
        /// The knob, as a recording has it ("size_bytes", "nft.rules").
        knob: String,
        /// What one unit of it is called ("byte"); none for the knob's name.
        #[serde(default)]
        unit: Option<String>,
        /// The layer; none for the whole path.
        #[serde(default)]
        layer: Option<String>,
        /// The function, with its own cost; none for all.
        #[serde(default)]
        function: Option<String>,
        /// The stage; none for all.
        #[serde(default)]
        stage: Option<String>,
        /// The arms; none for all that have the class.
        #[serde(default)]
        arms: Vec<String>,
        /// Only arms with at least this much of the knob.
        #[serde(default)]
        from: Option<i64>,
        /// Only arms with at most this much.
        #[serde(default)]
        to: Option<i64>,
        /// How far an arm may be off the line, percent of its cost; none for not at
        /// all, to the instruction.
        #[serde(default)]
        within_percent: Option<f64>,
    }
    /// An arm beside another.
    Compare {
        /// The classes.
        #[serde(default)]
        classes: Vec<Class>,
        /// The arm compared.
        arm: String,
        /// With which; none for the first that has the class.
        #[serde(default)]
        against: Option<String>,
        /// The layer; none for the whole path.
        #[serde(default)]
        layer: Option<String>,
        /// The function, with its own cost; none for all.
        #[serde(default)]
        function: Option<String>,
        /// The stage; none for all.
        #[serde(default)]
        stage: Option<String>,
        /// How it is to stand to the other; none to ask.
        #[serde(default)]
        is: Option<Relation>,
    }
    /// The cost is the same in all arms: to the instruction, or as far as blocks can tell.
    Unchanged {
        /// The classes.
        #[serde(default)]
        classes: Vec<Class>,
        /// The layer; none for the whole path.
        #[serde(default)]
        layer: Option<String>,
        /// The function, with its own cost; none for all.
        #[serde(default)]
        function: Option<String>,
        /// The stage; none for all.
        #[serde(default)]
        stage: Option<String>,
        /// The arms; none for all that have the class.
        #[serde(default)]
        arms: Vec<String>,
    }
    /// The functions by which an arm differs from another most: asked, not held.
    ChangedBy {
        /// The classes.
        #[serde(default)]
        classes: Vec<Class>,
        /// The arm compared.
        arm: String,
        /// With which; none for the first that has the class.
        #[serde(default)]
        against: Option<String>,
        /// How many functions.
        #[serde(default)]
        top: Option<usize>,
    }
    /// The arms, the cheapest first: asked, not held.
    Ranking {
        /// The classes.
        #[serde(default)]
        classes: Vec<Class>,
        /// The layer; none for the whole path.
        #[serde(default)]
        layer: Option<String>,
        /// The function, with its own cost; none for all.
        #[serde(default)]
        function: Option<String>,
        /// The stage; none for all.
        #[serde(default)]
        stage: Option<String>,
        /// The arms; none for all that have the class.
        #[serde(default)]
        arms: Vec<String>,
    }
    /// A path has more of a quantity than another one (packets handled, if none is named):
    /// the interval on the ratio is above 1.
    Faster {
        /// The figure whose arms are compared; none for all arms.
        #[serde(default)]
        figure: Option<String>,
        /// The path.
        path: DataPath,
        /// The one that it is compared with.
        than: DataPath,
        /// Only arms with these levels.
        #[serde(default, rename = "where")]
        levels: Knobs,
    }
    /// A path keeps its CPU busy in every arm.
    Pinned {
        /// The figure; none for all arms.
        #[serde(default)]
        figure: Option<String>,
        /// The path.
        path: DataPath,
        /// Only arms with these levels.
        #[serde(default, rename = "where")]
        levels: Knobs,
        /// At least so many CPUs are busy in every arm, less those of the generator.
        at_least: f64,
    }
    /// A path's CPU use grows with what is offered: from the least to the most by a
    /// factor.
    Scales {
        /// The figure; none for all arms.
        #[serde(default)]
        figure: Option<String>,
        /// The path.
        path: DataPath,
        /// Only arms with these levels.
        #[serde(default, rename = "where")]
        levels: Knobs,
        /// The least factor.
        by: f64,
    }
}

impl Claim {
    /// The classes it is about; none of a claim about paths.
    pub fn classes(&self) -> &[Class] {
        match self {
            Claim::Alike { classes, .. }
            | Claim::Unlike { classes, .. }
            | Claim::Smaller { classes, .. }
            | Claim::Bottleneck { classes, .. }
            | Claim::Linear { classes, .. }
            | Claim::Compare { classes, .. }
            | Claim::Unchanged { classes, .. }
            | Claim::ChangedBy { classes, .. }
            | Claim::Ranking { classes, .. } => classes,
            Claim::Faster { .. } | Claim::Pinned { .. } | Claim::Scales { .. } => &[],
        }
    }

    /// The figure and the paths, of a claim about paths.
    pub fn paths(&self) -> Option<(Option<&str>, Vec<DataPath>)> {
        match self {
            Claim::Faster {
                figure, path, than, ..
            } => Some((figure.as_deref(), vec![*path, *than])),
            Claim::Pinned { figure, path, .. } | Claim::Scales { figure, path, .. } => {
                Some((figure.as_deref(), vec![*path]))
            }
            _ => None,
        }
    }

    /// The layers that it names.
    pub fn layers(&self) -> Vec<&str> {
        match self {
            Claim::Alike { layer, .. } | Claim::Unlike { layer, .. } => vec![layer],
            Claim::Smaller { of, than, .. } => of.iter().chain(than).map(String::as_str).collect(),
            Claim::Bottleneck { layer, .. }
            | Claim::Linear { layer, .. }
            | Claim::Compare { layer, .. }
            | Claim::Unchanged { layer, .. }
            | Claim::Ranking { layer, .. } => layer.iter().map(String::as_str).collect(),
            Claim::ChangedBy { .. }
            | Claim::Faster { .. }
            | Claim::Pinned { .. }
            | Claim::Scales { .. } => Vec::new(),
        }
    }

    /// The arms that it names.
    pub fn arms(&self) -> Vec<&str> {
        match self {
            Claim::Alike { arm, .. }
            | Claim::Unlike { arm, .. }
            | Claim::Smaller { arm, .. }
            | Claim::Bottleneck { arm, .. } => arm.iter().map(String::as_str).collect(),
            Claim::Linear { arms, .. }
            | Claim::Unchanged { arms, .. }
            | Claim::Ranking { arms, .. } => arms.iter().map(String::as_str).collect(),
            Claim::Compare { arm, against, .. } | Claim::ChangedBy { arm, against, .. } => {
                let against = against.iter().map(String::as_str);
                std::iter::once(arm.as_str()).chain(against).collect()
            }
            Claim::Faster { .. } | Claim::Pinned { .. } | Claim::Scales { .. } => Vec::new(),
        }
    }

    /// Ratios and shares that can be none.
    fn check_numbers(&self) -> Result<(), (&'static str, String)> {
        let ratio = match self {
            Claim::Alike { within_ratio, .. } => Some(("within_ratio", *within_ratio)),
            Claim::Unlike { beyond_ratio, .. } => Some(("beyond_ratio", *beyond_ratio)),
            _ => None,
        };
        if let Claim::Smaller {
            within_ratio: r, ..
        } = self
            && !(*r > 0.0 && *r <= 1.0)
        {
            return Err((
                "within_ratio",
                format!("a ratio of {r}: small over large is more than 0 and at most 1"),
            ));
        }
        if let Some((key, r)) = ratio
            && (!r.is_finite() || r < 1.0)
        {
            return Err((
                key,
                format!("a ratio of {r}: largest over smallest is 1 or more"),
            ));
        }
        if let Claim::Linear {
            within_percent: Some(percent),
            ..
        } = self
            && !(percent.is_finite() && (0.0..=100.0).contains(percent))
        {
            return Err(("within_percent", format!("{percent} percent: 0 to 100")));
        }
        Ok(())
    }
}

impl Experiment {
    pub(super) fn check_claims(&self) -> Result<(), (&'static str, String)> {
        let arms = self.arms();
        for p in &self.published {
            for (key, us, least) in [
                ("total_us", p.total_us, f64::MIN_POSITIVE),
                ("top_us", p.top_us, 0.0),
            ] {
                if !us.is_finite() || us < least {
                    return Err((key, format!("{key} is {us}: a time in microseconds")));
                }
            }
        }
        let sends = matches!(self.workload.kind, Kind::Packets | Kind::Stream);
        for claim in &self.claims {
            if let Some((figure, paths)) = claim.paths() {
                self.check_paths(figure, &paths)?;
                continue;
            }
            // Frames have no classes: their arms are compared as they are.
            if claim.classes().is_empty() && self.workload.kind != Kind::Frames {
                return Err((
                    "classes",
                    format!("the claim \"{}\" is about no class", claim.says()),
                ));
            }
            claim.check_numbers()?;
            // The arms of a scan are known when its settings are.
            for name in claim.arms().into_iter().filter(|_| self.scan.is_none()) {
                if !arms.iter().any(|arm| arm.name == name) {
                    let nearest = arms
                        .iter()
                        .min_by_key(|arm| strsim::damerau_levenshtein(name, &arm.name));
                    let hint = nearest.map_or("", |arm| &arm.name);
                    return Err((
                        "arm",
                        format!("no arm is called `{name}`: did you mean `{hint}`?"),
                    ));
                }
            }
            for class in claim.classes().iter().filter(|_| sends) {
                if !arms.iter().any(|arm| arm.proto == class.proto) {
                    return Err((
                        "classes",
                        format!(
                            "no arm sends {}, which the class `{class}` needs",
                            class.proto
                        ),
                    ));
                }
            }
        }
        for name in self.conclusion.iter().flat_map(|c| placeholders(c)) {
            if !self.claims.iter().any(|c| c.name() == Some(name)) {
                return Err((
                    "conclusion",
                    format!("no claim is called `{name}`, which the conclusion names"),
                ));
            }
        }
        Ok(())
    }

    /// Check that a claim about paths is about some that are measured.
    fn check_paths(
        &self,
        figure: Option<&str>,
        paths: &[DataPath],
    ) -> Result<(), (&'static str, String)> {
        if self.workload.kind != Kind::Frames {
            let why = "a claim about paths is about frames: [workload] kind = \"frames\"";
            return Err(("path", why.into()));
        }
        let (of, arms) = match figure {
            None => ("the experiment".into(), self.bench_arms()?),
            Some(name) => match self.figures.iter().find(|f| f.name == name) {
                Some(figure) => (format!("figure `{name}`"), self.bench_arms_of(figure)?),
                None => {
                    let names: Vec<&str> = self.figures.iter().map(|f| f.name.as_str()).collect();
                    let there = names.join(", ");
                    let why = format!("no figure is called `{name}`: there are {there}");
                    return Err(("figure =", why));
                }
            },
        };
        match paths.iter().find(|p| !arms.iter().any(|a| a.path == **p)) {
            Some(path) => Err(("path", format!("{of} has no path {path}"))),
            None => Ok(()),
        }
    }
}

/// The names in braces of a conclusion.
fn placeholders(text: &str) -> impl Iterator<Item = &str> {
    text.split('{')
        .skip(1)
        .filter_map(|rest| Some(rest.split_once('}')?.0))
}
