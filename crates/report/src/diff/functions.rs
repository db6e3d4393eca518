//! Which function of one side is which of the other, by name.
//!
//! First, functions of the same name and module; but where a kernel has several
//! implementations of one function (`memset`, `memset_orig`) and the two kernels ran
//! different ones, all of them are that function. Then, names that differ only in what
//! the compiler appended (`.isra.0`, `.constprop.0`, `.llvm.123`, a number) or a macro
//! (`_noprof`); then, functions that only moved between a module and the kernel itself.
//! Renamed ones need the call tree: see `renames.rs`.
//!
//! Each pair of arms is matched by itself, whatever else is compared: the same question
//! has one answer, however it is asked.

use std::collections::{BTreeMap, BTreeSet};

use netplumb_model::recording::{Function, FunctionId, Recording};
use netplumb_model::symbol::{base_name, implementation_of, is_part, source_name};

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
    /// The functions before: several where that side ran several implementations of it.
    pub before: Vec<FunctionId>,
    /// And after.
    pub after: Vec<FunctionId>,
    /// Its symbol before, if that was another.
    pub was: Option<String>,
    /// Why two functions of different names are treated as one.
    pub why: Option<String>,
}

/// All functions of a comparison.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Functions {
    /// The joint functions of each pair of arms.
    pub joints: Vec<Joint>,
    /// For the pair that was matched last: the joint of each function before.
    pub(super) before: BTreeMap<FunctionId, JointId>,
    /// And after.
    pub(super) after: BTreeMap<FunctionId, JointId>,
}

impl Functions {
    /// Match the functions of a pair's sides that have any cost.
    pub(super) fn add_pair(
        &mut self,
        before: (&Recording, &BTreeSet<FunctionId>),
        after: (&Recording, &BTreeSet<FunctionId>),
        same_kernel: bool,
    ) {
        let functions = self;
        functions.before.clear();
        functions.after.clear();
        let mut left_before: Vec<FunctionId> = before.1.iter().copied().collect();
        let mut left_after: Vec<FunctionId> = after.1.iter().copied().collect();
        let f = |id: &FunctionId| &before.0.functions[*id as usize];
        let g = |id: &FunctionId| &after.0.functions[*id as usize];
        // In one kernel a name is a function.
        if !same_kernel {
            functions.implementations((before.0, &mut left_before), (after.0, &mut left_after));
        }
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
                // Several functions of one key are in the order of their addresses
                // on either side. If one side has more, the name does not identify
                // the one left over.
                if befores.len() != afters.len() {
                    continue;
                }
                befores.sort_by_key(|id| (f(id).address, *id));
                afters.sort_by_key(|id| (g(id).address, *id));
                for (was, is) in befores.into_iter().zip(afters) {
                    let sides = ((f(&was), was), (g(&is), is));
                    functions.pair(sides.0, sides.1, why.map(String::from));
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
                let (base, part) = (base_name(&f.name), is_part(&f.name));
                Some(format!("{base}\0{part}\0{}", module(f)))
            },
            Some(compiler),
        );
        pass(&|f| Some(format!("{}\0{}", base_name(&f.name), module(f))), Some(compiler));
        pass(
            &|f| Some(format!("{}\0{}", source_name(&f.name), module(f))),
            Some(
                "from 6.10 on the function that allocates is called so, and the plain name is a macro",
            ),
        );
        pass(
            &|f| Some(source_name(&f.name).to_string()),
            Some("of the same name in another module, or in the kernel itself"),
        );
        for id in left_before {
            functions.alone(f(&id), Some(id), None);
        }
        for id in left_after {
            functions.alone(g(&id), None, Some(id));
        }
    }

    /// Join the implementations of one function, where the sides ran different ones.
    fn implementations(
        &mut self,
        before: (&Recording, &mut Vec<FunctionId>),
        after: (&Recording, &mut Vec<FunctionId>),
    ) {
        type Family<'a> = (Vec<(&'a str, FunctionId)>, Vec<(&'a str, FunctionId)>);
        let mut families: BTreeMap<&str, Family<'_>> = BTreeMap::new();
        let of = |recording: &'_ Recording, id: FunctionId| -> Option<(&'static str, usize)> {
            let function = &recording.functions[id as usize];
            let family = implementation_of(&function.name).filter(|_| function.module.is_none());
            family.map(|family| (family, id as usize))
        };
        for id in before.1.iter() {
            if let Some((family, at)) = of(before.0, *id) {
                let name = before.0.functions[at].name.as_str();
                families.entry(family).or_default().0.push((name, *id));
            }
        }
        for id in after.1.iter() {
            if let Some((family, at)) = of(after.0, *id) {
                let name = after.0.functions[at].name.as_str();
                families.entry(family).or_default().1.push((name, *id));
            }
        }
        for (family, (mut was, mut is)) in families {
            was.sort_unstable();
            is.sort_unstable();
            let names = |side: &[(&str, FunctionId)]| -> Vec<String> {
                side.iter().map(|(name, _)| (*name).to_string()).collect()
            };
            let (was_names, is_names) = (names(&was), names(&is));
            if was.is_empty() || is.is_empty() || was_names == is_names {
                continue;
            }
            let layer = |recording: &Recording, side: &[(&str, FunctionId)]| {
                let mut ids = side.iter().map(|(_, id)| *id as usize);
                ids.find_map(|id| recording.functions[id].layer.clone())
            };
            let id = self.joints.len() as JointId;
            self.joints.push(Joint {
                name: family.to_string(),
                module: None,
                layer: layer(after.0, &is)
                    .or_else(|| layer(before.0, &was))
                    .unwrap_or_else(|| NO_LAYER.into()),
                before: was.iter().map(|(_, id)| *id).collect(),
                after: is.iter().map(|(_, id)| *id).collect(),
                was: Some(was_names.join(" and ")),
                why: Some(format!(
                    "implementations of {family}, between which the CPU's features choose; after, {}",
                    is_names.join(" and ")
                )),
            });
            self.before.extend(was.iter().map(|(_, f)| (*f, id)));
            self.after.extend(is.iter().map(|(_, f)| (*f, id)));
        }
        before.1.retain(|id| !self.before.contains_key(id));
        after.1.retain(|id| !self.after.contains_key(id));
    }

    fn pair(
        &mut self,
        (was, before): (&Function, FunctionId),
        (is, after): (&Function, FunctionId),
        why: Option<String>,
    ) {
        let id = self.joints.len() as JointId;
        let layer = is.layer.as_ref().or(was.layer.as_ref());
        self.joints.push(Joint {
            name: is.name.clone(),
            module: is.module.clone(),
            layer: layer.map_or(NO_LAYER, String::as_str).to_string(),
            before: vec![before],
            after: vec![after],
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
            before: before.into_iter().collect(),
            after: after.into_iter().collect(),
            was: None,
            why: None,
        });
        self.before.extend(before.map(|f| (f, id)));
        self.after.extend(after.map(|f| (f, id)));
    }

    /// Treat one that is gone and one that is new as the same.
    pub(super) fn join(&mut self, gone: JointId, new: JointId, why: String) {
        let was = self.joints[gone as usize].clone();
        let joint = &mut self.joints[new as usize];
        joint.was = Some(was.name);
        joint.why = Some(why);
        for function in &was.before {
            self.before.insert(*function, new);
        }
        joint.before = was.before;
        // It stays in the list, to keep ids stable, and is on neither side.
        self.joints[gone as usize].before = Vec::new();
    }
}

impl Joint {
    /// Whether only the side before has it.
    pub fn is_gone(&self) -> bool {
        !self.before.is_empty() && self.after.is_empty()
    }

    /// "both", "gone" or "new".
    pub fn status(&self) -> &'static str {
        match (self.is_gone(), self.is_new()) {
            (true, _) => "gone",
            (_, true) => "new",
            _ => "both",
        }
    }

    /// Whether only the side after has it.
    pub fn is_new(&self) -> bool {
        self.before.is_empty() && !self.after.is_empty()
    }
}
