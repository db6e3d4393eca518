//! Claims about the results, and published results.

mod bound;
mod course;
mod only_if;
mod turning;

use serde::{Deserialize, Serialize};

pub use bound::Bound;
pub use course::Leg;
pub use only_if::OnlyIf;

use super::error::Mistake;
use super::shares::check_chain;
use super::{Experiment, Kind, Knobs};
use crate::bench::DataPath;
use crate::class::{Class, words};
use crate::condition::Condition;
use crate::recording::Arm;

words! {
    /// The expected relation between the costs of two arms.
    Relation, "relation",
    /// It is smaller.
    Less = "less",
    /// It is larger.
    More = "more",
    /// It is equal: to the instruction, or without a significant difference between blocks.
    Same = "same",
    /// It is not equal.
    Different = "different",
}

/// A published result for one class.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// The class that it is about ("raw tx").
    pub class: Class,
    /// The figure or table that it is from ("3a").
    pub figure: String,
    /// The layer's total, microseconds.
    pub total_us: f64,
    /// The most expensive function.
    pub top_function: String,
    /// The cost of that function, microseconds.
    pub top_us: f64,
}

/// Declares the kinds, each with the common fields.
macro_rules! claims {
    ($($(#[$doc:meta])* $kind:ident { $($(#[$of_field:meta])* $field:ident: $type:ty,)* })*) => {
        /// A statement that is tested against the results.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
        pub enum Claim {
            $($(#[$doc])* $kind {
                /// Its name in the conclusion.
                #[serde(default)]
                name: Option<String>,
                /// The claim as a sentence.
                says: String,
                /// The quantity; none for the first of the instrument.
                #[serde(default)]
                quantity: Option<String>,
                $($(#[$of_field])* $field: $type,)*
            },)*
        }

        impl Claim {
            /// The claim as a sentence.
            pub fn says(&self) -> &str {
                match self { $(Claim::$kind { says, .. } => says,)* }
            }

            /// Its name in the conclusion.
            pub fn name(&self) -> Option<&str> {
                match self { $(Claim::$kind { name, .. } => name,)* }.as_deref()
            }

            /// The quantity, if it is not the first of the instrument.
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
        /// The layer, as the rules name it.
        layer: String,
        /// Protocols and directions, at least one except for frames and two hosts.
        #[serde(default)]
        classes: Vec<Class>,
        /// The maximum ratio.
        within_ratio: f64,
        /// The arm; none for the first that has the class.
        #[serde(default)]
        arm: Option<String>,
    }
    /// A layer's cost differs between classes: largest over smallest is more
    /// than `beyond_ratio`.
    Unlike {
        /// The layer, as the rules name it.
        layer: String,
        /// Protocols and directions, at least one except for frames and two hosts.
        #[serde(default)]
        classes: Vec<Class>,
        /// The ratio that has to be exceeded.
        beyond_ratio: f64,
        /// The arm; none for the first that has the class.
        #[serde(default)]
        arm: Option<String>,
    }
    /// In every class, the layers of `of` together cost at most `within_ratio` of what the layers of `than` do.
    Smaller {
        /// The layers that are claimed to be small.
        of: Vec<String>,
        /// The layers that they are compared with.
        than: Vec<String>,
        /// The maximum ratio, at most 1.
        within_ratio: f64,
        /// Protocols and directions, at least one except for frames and two hosts.
        #[serde(default)]
        classes: Vec<Class>,
        /// The arm; none for the first that has the class.
        #[serde(default)]
        arm: Option<String>,
    }
    /// Show the most expensive function of a layer in each class.
    Bottleneck {
        /// The layer; none for the whole path.
        #[serde(default)]
        layer: Option<String>,
        /// Protocols and directions, at least one except for frames and two hosts.
        #[serde(default)]
        classes: Vec<Class>,
        /// The arm; none for the first that has the class.
        #[serde(default)]
        arm: Option<String>,
    }
    /// The cost is linear in a numeric knob: a fixed part, and a part for each unit of the
    /// knob.
    Linear {
        /// Protocols and directions, at least one except for frames and two hosts.
        #[serde(default)]
        classes: Vec<Class>,
        /// The knob, by its name in a recording ("size_bytes", "nft.rules").
        knob: String,
        /// The name of one unit of it ("byte"); by default the name of the knob.
        #[serde(default)]
        unit: Option<String>,
        /// The layer; none for the whole path.
        #[serde(default)]
        layer: Option<String>,
        /// The function, by its self cost; none for all.
        #[serde(default)]
        function: Option<String>,
        /// The stage; none for all.
        #[serde(default)]
        stage: Option<String>,
        /// The arms; none for all that have the class.
        #[serde(default)]
        arms: Vec<String>,
        /// Only arms with at least this level.
        #[serde(default)]
        from: Option<i64>,
        /// Only arms with at most this level.
        #[serde(default)]
        to: Option<i64>,
        /// The maximum deviation of an arm from the line, percent of its cost; by default none,
        /// to the instruction.
        #[serde(default)]
        within_percent: Option<f64>,
    }
    /// Compare an arm with another.
    Compare {
        /// Protocols and directions, at least one except for frames and two hosts.
        #[serde(default)]
        classes: Vec<Class>,
        /// The arm compared.
        arm: String,
        /// The arm to compare with; none for the first that has the class.
        #[serde(default)]
        against: Option<String>,
        /// The layer; none for the whole path.
        #[serde(default)]
        layer: Option<String>,
        /// The function, by its self cost; none for all.
        #[serde(default)]
        function: Option<String>,
        /// Only costs below a function: names from the outermost inwards, separated by `;`.
        #[serde(default)]
        below: Option<String>,
        /// The stage; none for all.
        #[serde(default)]
        stage: Option<String>,
        /// The expected relation; none to show the difference only.
        #[serde(default)]
        is: Option<Relation>,
        /// The smallest ratio of the arm's cost to the other arm's, instead of a relation.
        #[serde(default)]
        at_least: Option<f64>,
        /// The largest ratio, instead of a relation.
        #[serde(default)]
        at_most: Option<f64>,
        /// Instead of both, how far from 1 the ratio may be.
        #[serde(default)]
        within_percent: Option<f64>,
        /// The conditions on both arms, for the claim to apply.
        #[serde(default)]
        only_if: Option<OnlyIf>,
        /// The published ratio, shown beside ours.
        #[serde(default)]
        published: Option<f64>,
    }
    /// The cost is equal in all arms: to the instruction, or without a significant difference
    /// between blocks.
    Unchanged {
        /// Protocols and directions, at least one except for frames and two hosts.
        #[serde(default)]
        classes: Vec<Class>,
        /// The layer; none for the whole path.
        #[serde(default)]
        layer: Option<String>,
        /// The function, by its self cost; none for all.
        #[serde(default)]
        function: Option<String>,
        /// Only costs below a function: names from the outermost inwards, separated by `;`.
        #[serde(default)]
        below: Option<String>,
        /// The stage; none for all.
        #[serde(default)]
        stage: Option<String>,
        /// The arms; none for all that have the class.
        #[serde(default)]
        arms: Vec<String>,
        /// How much the most expensive arm may cost above the cheapest one; by default nothing.
        #[serde(default)]
        within_percent: Option<f64>,
    }
    /// Show the functions with the largest differences between two arms.
    ChangedBy {
        /// Protocols and directions, at least one except for frames and two hosts.
        #[serde(default)]
        classes: Vec<Class>,
        /// The arm compared.
        arm: String,
        /// The arm to compare with; none for the first that has the class.
        #[serde(default)]
        against: Option<String>,
        /// How many functions.
        #[serde(default)]
        top: Option<usize>,
    }
    /// A setting pays from some value of another quantity on, and not below it. Pairs of arms that differ in this
    /// setting alone are ordered by `by` without it.
    TurningPoint {
        /// Protocols and directions, at least one except for frames and two hosts.
        #[serde(default)]
        classes: Vec<Class>,
        /// The knob, by its name in a recording ("offload.tso").
        knob: String,
        /// Its level in the arms that are compared ("on").
        level: String,
        /// Its level in those that they are compared with ("off").
        against: String,
        /// The quantity that decides, of the arms with `against` ("CPU use of sender").
        by: String,
        /// The smallest ratio that is a gain, where more is better...
        #[serde(default)]
        at_least: Option<f64>,
        /// ... or the largest, where less is: one of the two.
        #[serde(default)]
        at_most: Option<f64>,
    }
    /// Over arms with a number for a knob, in their order, a quantity follows the legs of `is`, such as falling and
    /// then rising.
    Course {
        /// Protocols and directions, at least one except for frames and two hosts.
        #[serde(default)]
        classes: Vec<Class>,
        /// The knob, by its name in a recording ("buffer").
        knob: String,
        /// Its ways, in turns.
        is: Vec<Leg>,
        /// The reversal that counts as a turn, in percent.
        #[serde(default = "one_percent")]
        beyond_percent: f64,
        /// The arms; none for all that have the knob.
        #[serde(default)]
        arms: Vec<String>,
    }
    /// Show the arms in order of cost, the cheapest first.
    Ranking {
        /// Protocols and directions, at least one except for frames and two hosts.
        #[serde(default)]
        classes: Vec<Class>,
        /// The layer; none for the whole path.
        #[serde(default)]
        layer: Option<String>,
        /// The function, by its self cost; none for all.
        #[serde(default)]
        function: Option<String>,
        /// Only costs below a function: names from the outermost inwards, separated by `;`.
        #[serde(default)]
        below: Option<String>,
        /// The stage; none for all.
        #[serde(default)]
        stage: Option<String>,
        /// The arms; none for all that have the class.
        #[serde(default)]
        arms: Vec<String>,
    }
    /// All or most traced calls in these arms meet `have`; needs `[trace]` with arguments, and room for all calls.
    Calls {
        /// Protocols and directions, at least one except for frames and two hosts.
        #[serde(default)]
        classes: Vec<Class>,
        /// The arms with traced calls, at least one.
        arms: Vec<String>,
        /// The condition on each call.
        have: Condition,
        /// In at least this share of the calls; none for all of them.
        #[serde(default)]
        at_least: Option<f64>,
    }
    /// A data path has more of a quantity than another (by default packets handled): the
    /// confidence interval of the ratio is above 1.
    Faster {
        /// The figure whose arms are compared; none for all arms.
        #[serde(default)]
        figure: Option<String>,
        /// The data path that is claimed to have more.
        path: DataPath,
        /// The data path to compare with.
        than: DataPath,
        /// Only arms with these levels.
        #[serde(default, rename = "where")]
        levels: Knobs,
    }
    /// A data path keeps its CPUs busy in every arm.
    Pinned {
        /// The figure; none for all arms.
        #[serde(default)]
        figure: Option<String>,
        /// The data path that is claimed to be busy.
        path: DataPath,
        /// Only arms with these levels.
        #[serde(default, rename = "where")]
        levels: Knobs,
        /// Minimum number of busy CPUs in every arm, not counting the generator's.
        at_least: f64,
    }
    /// The CPU use of a data path grows with the offered load: by at least a factor from the
    /// lowest to the highest load.
    Scales {
        /// The figure; none for all arms.
        #[serde(default)]
        figure: Option<String>,
        /// The data path whose CPU use is claimed to grow.
        path: DataPath,
        /// Only arms with these levels.
        #[serde(default, rename = "where")]
        levels: Knobs,
        /// The minimum factor.
        by: f64,
    }
}

fn one_percent() -> f64 {
    1.0
}

impl Claim {
    /// Its classes; none for claims about data paths.
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
            | Claim::Ranking { classes, .. }
            | Claim::TurningPoint { classes, .. }
            | Claim::Course { classes, .. }
            | Claim::Calls { classes, .. } => classes,
            Claim::Faster { .. } | Claim::Pinned { .. } | Claim::Scales { .. } => &[],
        }
    }

    /// The figure and the data paths, for claims about data paths.
    pub fn paths(&self) -> Option<(Option<&str>, Vec<DataPath>)> {
        match self {
            Claim::Faster { figure, path, than, .. } => {
                Some((figure.as_deref(), vec![*path, *than]))
            }
            Claim::Pinned { figure, path, .. } | Claim::Scales { figure, path, .. } => {
                Some((figure.as_deref(), vec![*path]))
            }
            _ => None,
        }
    }

    /// All layers in it.
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
            | Claim::Calls { .. }
            | Claim::TurningPoint { .. }
            | Claim::Course { .. }
            | Claim::Faster { .. }
            | Claim::Pinned { .. }
            | Claim::Scales { .. } => Vec::new(),
        }
    }

    /// All arms in it.
    pub fn arms(&self) -> Vec<&str> {
        match self {
            Claim::Alike { arm, .. }
            | Claim::Unlike { arm, .. }
            | Claim::Smaller { arm, .. }
            | Claim::Bottleneck { arm, .. } => arm.iter().map(String::as_str).collect(),
            Claim::Linear { arms, .. }
            | Claim::Unchanged { arms, .. }
            | Claim::Ranking { arms, .. }
            | Claim::Course { arms, .. }
            | Claim::Calls { arms, .. } => arms.iter().map(String::as_str).collect(),
            Claim::Compare { arm, against, .. } | Claim::ChangedBy { arm, against, .. } => {
                let against = against.iter().map(String::as_str);
                std::iter::once(arm.as_str()).chain(against).collect()
            }
            Claim::TurningPoint { .. }
            | Claim::Faster { .. }
            | Claim::Pinned { .. }
            | Claim::Scales { .. } => Vec::new(),
        }
    }

    /// The functions below which it looks.
    pub fn below(&self) -> Option<&str> {
        match self {
            Claim::Compare { below, .. }
            | Claim::Unchanged { below, .. }
            | Claim::Ranking { below, .. } => below.as_deref(),
            _ => None,
        }
    }

    /// Check ratios and percentages.
    fn check_numbers(&self) -> Result<(), (&'static str, String)> {
        let ratio = match self {
            Claim::Alike { within_ratio, .. } => Some(("within_ratio", *within_ratio)),
            Claim::Unlike { beyond_ratio, .. } => Some(("beyond_ratio", *beyond_ratio)),
            _ => None,
        };
        if let Claim::Smaller { within_ratio: r, .. } = self
            && !(*r > 0.0 && *r <= 1.0)
        {
            return Err((
                "within_ratio",
                format!("invalid within_ratio `{r}`; expected more than 0 and at most 1"),
            ));
        }
        if let Some((key, r)) = ratio
            && (!r.is_finite() || r < 1.0)
        {
            return Err((
                key,
                format!("invalid {key} `{r}`; expected 1 or more (largest over smallest)"),
            ));
        }
        if let Claim::Calls { at_least: Some(share), .. } = self
            && !(*share > 0.0 && *share <= 1.0)
        {
            let why = format!("invalid at_least `{share}`; expected more than 0 and at most 1");
            return Err(("at_least", why));
        }
        if let Claim::Linear { within_percent: Some(percent), .. } = self
            && !(percent.is_finite() && (0.0..=100.0).contains(percent))
        {
            let why = format!("invalid within_percent `{percent}`; expected 0 to 100");
            return Err(("within_percent", why));
        }
        Ok(())
    }
}

impl Experiment {
    pub(super) fn check_claims(&self) -> Result<(), Mistake> {
        let arms = self.arms();
        for (n, p) in self.published.iter().enumerate() {
            for (key, us, least) in
                [("total_us", p.total_us, f64::MIN_POSITIVE), ("top_us", p.top_us, 0.0)]
            {
                if !us.is_finite() || us < least {
                    let why = format!("invalid {key} `{us}`; expected microseconds, like 1.5");
                    return Err(Mistake::within("published", n)((key, why).into()));
                }
            }
        }
        for (n, claim) in self.claims.iter().enumerate() {
            let checked = self.check_claim(claim, &arms);
            checked.map_err(Mistake::within("claim", n))?;
        }
        for name in self.conclusion.iter().flat_map(|c| placeholders(c)) {
            if !self.claims.iter().any(|c| c.name() == Some(name)) {
                let named: Vec<&str> = self.claims.iter().filter_map(Claim::name).collect();
                return Err(Mistake::unknown("conclusion", "claim", name, &named));
            }
        }
        Ok(())
    }

    fn check_claim(&self, claim: &Claim, arms: &[Arm]) -> Result<(), Mistake> {
        if let Some((figure, paths)) = claim.paths() {
            return self.check_paths(figure, &paths);
        }
        // Frames have no classes: their arms are compared as they are.
        // Nor do figures of two hosts.
        let has_classes = self.workload.kind != Kind::Frames && !self.has_hosts();
        if claim.classes().is_empty() && has_classes {
            let why = "missing classes; expected like classes = [\"udp tx\"]";
            return Err(("classes", why.to_string()).into());
        }
        claim.check_numbers()?;
        claim.check_bound()?;
        claim.check_only_if()?;
        claim.check_published()?;
        if let Claim::Calls { have, arms, .. } = claim {
            if arms.is_empty() {
                let why = "missing arms; expected like arms = [\"before\"]";
                return Err(("arms", why.to_string()).into());
            }
            self.check_calls(have)?;
        }
        if let Some(below) = claim.below() {
            check_chain("below", below)?;
        }
        // The arms of a scan come on top of these.
        claim.check_turning_point(arms, self.scan.is_some())?;
        claim.check_course(arms, self.scan.is_some())?;
        // The arms of a scan are unknown before its settings are listed.
        for name in claim.arms().into_iter().filter(|_| self.scan.is_none()) {
            if !arms.iter().any(|arm| arm.name == name) {
                let known: Vec<&str> = arms.iter().map(|arm| arm.name.as_str()).collect();
                let key = match claim {
                    Claim::Compare { against, .. } | Claim::ChangedBy { against, .. }
                        if against.as_deref() == Some(name) =>
                    {
                        "against"
                    }
                    Claim::Linear { .. }
                    | Claim::Unchanged { .. }
                    | Claim::Ranking { .. }
                    | Claim::Course { .. }
                    | Claim::Calls { .. } => "arms",
                    _ => "arm",
                };
                return Err(Mistake::unknown(key, "arm", name, &known));
            }
        }
        let sends = matches!(self.workload.kind, Kind::Packets | Kind::Stream);
        for class in claim.classes().iter().filter(|_| sends) {
            if !arms.iter().any(|arm| arm.proto == class.proto) {
                let why = format!("no arm sends {} (class `{class}`)", class.proto);
                return Err(("classes", why).into());
            }
        }
        Ok(())
    }

    /// Check that the calls of a claim are traced, with the arguments that it uses.
    fn check_calls(&self, have: &Condition) -> Result<(), Mistake> {
        let why = match &self.trace {
            None => "claims about calls need [trace], with the function",
            Some(trace) if trace.only.is_some() => {
                "claims about calls are about all of them: leave out `if` in [trace]"
            }
            Some(trace) if !trace.args && have.values().next().is_some() => {
                "claims about arguments need args = true in [trace]"
            }
            Some(_) => return Ok(()),
        };
        Err(("have", why.to_string()).into())
    }

    /// Check that the data paths of a claim are measured.
    fn check_paths(&self, figure: Option<&str>, paths: &[DataPath]) -> Result<(), Mistake> {
        if self.workload.kind != Kind::Frames {
            let why = "claims about data paths need [workload] kind = \"frames\"";
            return Err(("path", why.to_string()).into());
        }
        let (of, arms) = match figure {
            None => ("the experiment".into(), self.bench_arms()?),
            Some(name) => match self.figures.iter().find(|f| f.name == name) {
                Some(figure) => (format!("figure `{name}`"), self.bench_arms_of(figure)?),
                None => {
                    let names: Vec<&str> = self.figures.iter().map(|f| f.name.as_str()).collect();
                    return Err(Mistake::unknown("figure", "figure", name, &names));
                }
            },
        };
        match paths.iter().find(|p| !arms.iter().any(|a| a.path == **p)) {
            Some(path) => {
                let key = if *path == paths[0] { "path" } else { "than" };
                Err((key, format!("{of} has no data path {path}")).into())
            }
            None => Ok(()),
        }
    }
}

/// The names in braces of a conclusion.
fn placeholders(text: &str) -> impl Iterator<Item = &str> {
    text.split('{').skip(1).filter_map(|rest| Some(rest.split_once('}')?.0))
}
