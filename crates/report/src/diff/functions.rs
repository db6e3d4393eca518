//! Which function of one side is which of the other, by name.
//!
//! First those of the same name and module. Of the rest, those whose names differ
//! only in what the compiler appended (`.isra.0`, `.constprop.0`, `.llvm.123`, a
//! number), then those that only moved between a module and the kernel itself.
//! Renamed ones need the call tree: see [`super::renames`].

use std::collections::{BTreeMap, BTreeSet};

use netplumb_model::recording::{Function, FunctionId, Recording};

use crate::analysis::NO_LAYER;

/// Index of a function in a comparison.
pub type JointId = u32;

/// A function of either side, or of both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Joint {
    /// Its symbol; the later one, if there are two.
    pub name: String,
    /// The module that it is in, likewise.
    pub module: Option<String>,
    /// Its layer, likewise, or [`NO_LAYER`].
    pub layer: String,
    /// What it is before, if anything.
    pub before: Option<FunctionId>,
    /// And after.
    pub after: Option<FunctionId>,
    /// Its symbol before, if that was another.
    pub was: Option<String>,
    /// Why two of different names are held to be one.
    pub why: Option<String>,
}

/// All functions of a comparison.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Functions {
    /// Each once.
    pub joints: Vec<Joint>,
    /// Where those of the recording before are.
    pub before: BTreeMap<FunctionId, JointId>,
    /// And after.
    pub after: BTreeMap<FunctionId, JointId>,
}

/// What the compiler puts after a dot. Parts are pieces of a function, of which
/// the rest has the plain name.
const CLONES: [&str; 5] = ["isra", "constprop", "llvm", "lto_priv", "localalias"];
const PARTS: [&str; 2] = ["part", "cold"];

/// A symbol without what the compiler appended, and whether it is a part.
pub(super) fn base_name(symbol: &str) -> (&str, bool) {
    let mut name = symbol;
    let mut part = false;
    while let Some((rest, suffix)) = name.rsplit_once('.') {
        let number = !suffix.is_empty() && suffix.bytes().all(|b| b.is_ascii_digit());
        part |= PARTS.contains(&suffix);
        if rest.is_empty() || !(number || CLONES.contains(&suffix) || PARTS.contains(&suffix)) {
            break;
        }
        name = rest;
    }
    (name, part)
}

impl Functions {
    /// Match the functions of two sides that any cost names.
    pub(super) fn by_name(
        before: (&Recording, &BTreeSet<FunctionId>),
        after: (&Recording, &BTreeSet<FunctionId>),
    ) -> Functions {
        let mut functions = Functions::default();
        let mut left_before: Vec<FunctionId> = before.1.iter().copied().collect();
        let mut left_after: Vec<FunctionId> = after.1.iter().copied().collect();
        let f = |id: &FunctionId| &before.0.functions[*id as usize];
        let g = |id: &FunctionId| &after.0.functions[*id as usize];
        let mut pass = |key: &dyn Fn(&Function) -> Option<String>, why: Option<&str>| {
            let mut groups: BTreeMap<String, (Vec<FunctionId>, Vec<FunctionId>)> = BTreeMap::new();
            for id in &left_before {
                if let Some(key) = key(f(id)) {
                    groups.entry(key).or_default().0.push(*id);
                }
            }
            for id in &left_after {
                if let Some(key) = key(g(id)) {
                    groups.entry(key).or_default().1.push(*id);
                }
            }
            for (mut befores, mut afters) in groups.into_values() {
                // Several of one key stand in the order of their addresses on
                // either side. Where there are more on one, which is left over
                // can't be told by name.
                if befores.len() != afters.len() {
                    continue;
                }
                befores.sort_by_key(|id| (f(id).address, *id));
                afters.sort_by_key(|id| (g(id).address, *id));
                for (was, is) in befores.into_iter().zip(afters) {
                    functions.pair(f(&was), was, g(&is), is, why.map(String::from));
                }
            }
            left_before.retain(|id| !functions.before.contains_key(id));
            left_after.retain(|id| !functions.after.contains_key(id));
        };
        let module = |f: &Function| f.module.clone().unwrap_or_default();
        pass(&|f| Some(format!("{}\0{}", f.name, module(f))), None);
        let compiler = "the compiler names its clones anew";
        pass(
            &|f| {
                let (base, part) = base_name(&f.name);
                Some(format!("{base}\0{part}\0{}", module(f)))
            },
            Some(compiler),
        );
        pass(
            &|f| Some(format!("{}\0{}", base_name(&f.name).0, module(f))),
            Some(compiler),
        );
        pass(
            &|f| Some(base_name(&f.name).0.to_string()),
            Some("of the same name in another module, or in the kernel itself"),
        );
        for id in left_before {
            functions.alone(f(&id), Some(id), None);
        }
        for id in left_after {
            functions.alone(g(&id), None, Some(id));
        }
        functions
    }

    fn pair(
        &mut self,
        was: &Function,
        before: FunctionId,
        is: &Function,
        after: FunctionId,
        why: Option<String>,
    ) {
        let id = self.joints.len() as JointId;
        let layer = is.layer.as_ref().or(was.layer.as_ref());
        self.joints.push(Joint {
            name: is.name.clone(),
            module: is.module.clone(),
            layer: layer.map_or(NO_LAYER, String::as_str).to_string(),
            before: Some(before),
            after: Some(after),
            was: (was.name != is.name).then(|| was.name.clone()),
            why,
        });
        self.before.insert(before, id);
        self.after.insert(after, id);
    }

    fn alone(
        &mut self,
        function: &Function,
        before: Option<FunctionId>,
        after: Option<FunctionId>,
    ) {
        let id = self.joints.len() as JointId;
        self.joints.push(Joint {
            name: function.name.clone(),
            module: function.module.clone(),
            layer: function.layer.clone().unwrap_or_else(|| NO_LAYER.into()),
            before,
            after,
            was: None,
            why: None,
        });
        self.before.extend(before.map(|f| (f, id)));
        self.after.extend(after.map(|f| (f, id)));
    }

    /// Hold one that is gone and one that is new to be the same.
    pub(super) fn join(&mut self, gone: JointId, new: JointId, why: String) {
        let was = self.joints[gone as usize].clone();
        let joint = &mut self.joints[new as usize];
        joint.before = was.before;
        joint.was = Some(was.name);
        joint.why = Some(why);
        if let Some(function) = was.before {
            self.before.insert(function, new);
        }
        // It stays where it is, for ids to stay, and is on neither side.
        self.joints[gone as usize].before = None;
    }
}

impl Joint {
    /// Whether it was there and is no more.
    pub fn is_gone(&self) -> bool {
        self.before.is_some() && self.after.is_none()
    }

    /// "both", "gone" or "new".
    pub fn status(&self) -> &'static str {
        match (self.is_gone(), self.is_new()) {
            (true, _) => "gone",
            (_, true) => "new",
            _ => "both",
        }
    }

    /// Whether it was not there and is now.
    pub fn is_new(&self) -> bool {
        self.before.is_none() && self.after.is_some()
    }
}
