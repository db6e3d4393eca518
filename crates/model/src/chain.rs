//! The functions that a user names, and what is below them in the calling-context tree: below one, or
//! below a chain of them.

use crate::recording::{FunctionId, Recording, THREAD_MODULE};
use crate::symbol::{base_name, is_called};

/// The separator of functions in a chain.
const BETWEEN: char = ';';

/// The functions of the calling-context tree that a user's name stands for. A plain name is the function of the source,
/// with all its clones and parts (`f`, `f.isra.0`, `f.cold`): which of them a kernel has is its compiler's choice. A
/// name with such a suffix is that symbol alone, or the function where there is no such symbol. Where there is none, it
/// means the C++ or Rust functions of that name ([`is_called`]). A thread counts as a function only if nothing else has
/// its name.
pub fn functions(recording: &Recording, name: &str) -> Vec<FunctionId> {
    let mut used = vec![false; recording.functions.len()];
    for node in &recording.nodes {
        if let Some(used) = used.get_mut(node.function as usize) {
            *used = true;
        }
    }
    let of = |is: &dyn Fn(&str) -> bool| -> Vec<FunctionId> {
        let functions = (0..).zip(&recording.functions).zip(&used);
        let found = functions.filter(|((_, function), used)| **used && is(&function.name));
        found.map(|((id, _), _)| id).collect()
    };
    let plain = base_name(name);
    let found = match name == plain {
        true => Vec::new(),
        false => of(&|symbol| symbol == name),
    };
    let found = match found.is_empty() {
        true => of(&|symbol| base_name(symbol) == plain),
        false => found,
    };
    let found = match found.is_empty() {
        true => of(&|symbol| is_called(symbol, name)),
        false => found,
    };
    let is_thread = |id: &FunctionId| {
        let function = recording.functions.get(*id as usize);
        function.is_some_and(|function| function.module.as_deref() == Some(THREAD_MODULE))
    };
    match found.iter().all(is_thread) {
        true => found,
        false => found.into_iter().filter(|id| !is_thread(id)).collect(),
    }
}

/// Of each node, whether it is the last function of a chain or below it: names from the outermost
/// inwards, which need not call each other directly.
pub fn below(recording: &Recording, chain: &str) -> Vec<bool> {
    let chain: Vec<Vec<FunctionId>> = names(chain).map(|name| functions(recording, name)).collect();
    let mut met: Vec<usize> = Vec::with_capacity(recording.nodes.len());
    for node in &recording.nodes {
        // A parent's number is below its children's.
        let above = node.parent.map_or(0, |parent| met[parent as usize]);
        let meets = chain.get(above).is_some_and(|wanted| wanted.contains(&node.function));
        met.push(above + usize::from(meets));
    }
    met.into_iter().map(|n| n == chain.len()).collect()
}

/// The functions of a chain, the outermost first.
pub fn names(chain: &str) -> impl DoubleEndedIterator<Item = &str> {
    chain.split(BETWEEN)
}

/// A chain in a sentence: "skb_dequeue below usbnet_bh".
pub fn chain_text(chain: &str) -> String {
    let names: Vec<&str> = names(chain).rev().collect();
    names.join(" below ")
}

#[cfg(test)]
mod tests {
    use crate::recording::{Function, Node};

    use super::*;

    /// Check that a chain is met from the outermost function inwards, with others between, and that callees of its last
    /// function are below it; that a plain name includes its clones, and a clone's name only that clone, or the
    /// function where there is no such clone.
    #[test]
    fn chains() {
        let mut recording = Recording::default();
        for (id, (name, parent)) in (0..).zip([
            ("a", None),
            ("x", Some(0)),
            ("b.isra.0", Some(1)),
            ("c", Some(2)),
            ("b", None),
            ("a", Some(4)),
        ]) {
            recording.functions.push(Function {
                name: name.into(),
                module: None,
                layer: None,
                address: 0,
                size_bytes: 0,
                source: None,
            });
            recording.nodes.push(Node { parent, function: id, tail: false });
        }
        let found = |chain: &str| -> Vec<usize> {
            let below = below(&recording, chain);
            (0..below.len()).filter(|n| below[*n]).collect()
        };
        assert_eq!(found("a"), [0, 1, 2, 3, 5]);
        assert_eq!(found("a;b"), [2, 3]);
        assert_eq!(found("b"), [2, 3, 4, 5]);
        assert_eq!(found("a;b.part.0"), [2, 3]);
        assert_eq!(found("b.isra.0"), [2, 3]);
        assert_eq!(functions(&recording, "b"), [2, 4]);
        assert_eq!(functions(&recording, "b.isra.0"), [2]);
        assert_eq!(functions(&recording, "b.isra.1"), [2, 4]);
        assert_eq!(functions(&recording, "d"), [0; 0]);
        assert_eq!(found("c;a"), [0; 0]);
        assert_eq!(chain_text("a;b"), "b below a");
    }
}
