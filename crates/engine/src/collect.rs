//! Collects the windows of accountants into a recording.
//!
//! Several guests may contribute to one recording, each with a symbol table and
//! a tree of its own; functions are the same if their name and module are.

use std::collections::{BTreeMap, HashMap};

use netplumb_instruments::exact::{
    FIRST_USER_SYMBOL, RanInsn, Sampling, Symbol, TreeNode, UNKNOWN, UserSymbol, Window,
};
use netplumb_kernel::kallsyms::SymbolTable;
use netplumb_kernel::layers::{APPLICATION, LayerRules};
use netplumb_model::class::{Context, Direction};
use netplumb_model::code::{FunctionCode, Instruction};
use netplumb_model::quantity::{FigureKey, QuantityId, Subject};
use netplumb_model::recording::{
    Block, Cost, Function, FunctionId, Ledger, Node, NodeId, Recording, SourceLine, Total,
};
use netplumb_model::symbol::base_name;
use netplumb_model::timing::{
    DEFERRED, IN_KERNEL, INSTRUCTIONS, INTERRUPTS_OFF, SAMPLE_PERIOD, SAMPLE_SEED, SAMPLED,
    USER_MODE,
};

use crate::index::{Index, add_costs, known};

/// The name of code that no symbol covers.
pub(crate) const UNKNOWN_NAME: &str = "[unknown]";

/// Source lines of code, by image and address in it, with the file ids of a recording.
pub(crate) type SourceLines = HashMap<(u32, u64), SourceLine>;

/// A guest's symbols and calling-context tree, in its own ids.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Executed<'a> {
    /// The symbols of its kernel.
    pub(crate) symbols: &'a SymbolTable,
    /// The symbols of user code.
    pub(crate) user: &'a [UserSymbol],
    /// Nodes of the calling-context tree, by id.
    pub(crate) nodes: &'a [TreeNode],
}

/// Maps a guest's ids to the recording's.
#[derive(Debug, Default)]
pub(crate) struct Translation {
    functions: HashMap<Symbol, FunctionId>,
    nodes: HashMap<NodeId, NodeId>,
}

impl Translation {
    /// Add the nodes of a guest that have costs in windows, their callers, and their functions.
    ///
    /// They are in order of names: work outside the windows, which differs from run to run, has no
    /// effect on a recording.
    pub(crate) fn add<'a>(
        recording: &mut Recording,
        index: &mut Index,
        executed: &Executed<'_>,
        layers: &LayerRules,
        windows: impl IntoIterator<Item = &'a Window>,
    ) -> Translation {
        let nodes = executed.nodes;
        let mut functions: HashMap<Symbol, Function> = HashMap::new();
        let mut children: HashMap<Option<NodeId>, Vec<NodeId>> = HashMap::new();
        let mut found = vec![false; nodes.len()];
        for mut node in windows.into_iter().flat_map(Window::nodes) {
            while !std::mem::replace(&mut found[node as usize], true) {
                let TreeNode { parent, symbol, .. } = nodes[node as usize];
                (functions.entry(symbol)).or_insert_with(|| executed.function(layers, symbol));
                children.entry(parent).or_default().push(node);
                match parent {
                    Some(parent) => node = parent,
                    None => break,
                }
            }
        }
        let key = |node: &NodeId| {
            let node = &nodes[*node as usize];
            let function = &functions[&node.symbol];
            (&function.name, &function.module, function.address, node.tail)
        };
        for of in children.values_mut() {
            // The last one is the next.
            of.sort_by(|a, b| key(b).cmp(&key(a)));
        }
        let mut added = Translation::default();
        let mut next = children.remove(&None).unwrap_or_default();
        while let Some(node) = next.pop() {
            let TreeNode { parent, symbol, tail } = nodes[node as usize];
            let function = *(added.functions.entry(symbol))
                .or_insert_with(|| known(recording, index, functions[&symbol].clone()));
            let new = Node {
                // A parent comes before its children, so it is mapped already.
                parent: parent.map(|parent| added.nodes[&parent]),
                function,
                tail,
            };
            added.nodes.insert(node, index.node(recording, new));
            next.extend(children.remove(&Some(node)).unwrap_or_default());
        }
        added
    }

    /// The recording's id of a symbol of a node with costs.
    pub(crate) fn function(&self, symbol: Symbol) -> Option<FunctionId> {
        self.functions.get(&symbol).copied()
    }

    /// The costs of a window in a block; `of` is their direction.
    pub(crate) fn costs<'a>(
        &'a self,
        (block, quantity): (u32, QuantityId),
        window: &'a Window,
        of: impl Fn(Direction) -> Direction + Clone + 'a,
    ) -> impl Iterator<Item = Cost> + Clone + 'a {
        window.costs.iter().map(move |cost| Cost {
            block,
            quantity,
            direction: of(cost.direction),
            context: cost.context,
            node: self.nodes[&cost.node],
            calls: cost.calls,
            own: cost.insns,
        })
    }

    /// Add a block and its costs.
    pub(crate) fn add_block(
        &self,
        recording: &mut Recording,
        arm: u32,
        index: u32,
        window: &Window,
        ledger: Ledger,
    ) {
        let block = recording.blocks.len() as u32;
        let quantity = recording.quantity(&INSTRUCTIONS);
        let costs = self.costs((block, quantity), window, |direction| direction);
        let calls = costs.clone().map(|cost| (cost.node, cost.calls));
        recording.blocks.push(Block {
            arm,
            instrument: INSTRUCTIONS.instrument.into(),
            index,
            ledger: with_netfilter(recording, calls, ledger),
            totals: vec![Total { quantity, kernel: window.kernel_insns, user: window.user_insns }],
            entered: window.entered,
            returned: window.returned,
            duration_ns: 0,
        });
        add_costs(recording, costs);
    }
}

impl Translation {
    /// Add the instructions that an arm executed in functions with costs.
    pub(crate) fn add_code(
        &self,
        recording: &mut Recording,
        arm: u32,
        executed: &Executed<'_>,
        insns: &[RanInsn],
        sources: &SourceLines,
    ) {
        for insns in insns.chunk_by(|a, b| a.symbol == b.symbol) {
            let Some(symbol) = insns.first().map(|insn| insn.symbol) else {
                continue;
            };
            let (Some(function), Some(address)) = (self.function(symbol), executed.begin(symbol))
            else {
                continue;
            };
            let image = executed.image(symbol);
            let insns = insns.iter().filter_map(|insn| {
                let offset = insn.address.checked_sub(address)?;
                let source = image.and_then(|image| sources.get(&(image, insn.address)));
                let insn = Instruction::new(offset.try_into().ok()?, &insn.code, insn.times)?;
                Some(insn.at(source.copied()))
            });
            recording.code.push(FunctionCode { arm, function, address, insns: insns.collect() });
        }
    }

    /// Add the samples of a window: one block, however many seeds there are. Its calls are the
    /// samples of all of them, its costs the mean over seeds.
    pub(crate) fn add_samples(
        &self,
        recording: &mut Recording,
        known_to: &mut Index,
        (arm, index): (u32, u32),
        window: &Window,
        ledger: &Ledger,
        sampling: &Sampling,
    ) {
        let calls = window.costs.iter();
        let calls = calls.map(|cost| (self.nodes[&cost.node], cost.calls));
        let ledger = with_netfilter(recording, calls, ledger.clone());
        recording.set(&SAMPLE_PERIOD, FigureKey::ONLY, sampling.period as f64);
        for (number, seed) in (0..).zip(&sampling.seeds) {
            recording.set(&SAMPLE_SEED, FigureKey::number(number), *seed as f64);
        }
        let block = recording.blocks.len() as u32;
        let seeds = window.sampled.len().max(1) as u64;
        let mean = |samples: u64| (samples * sampling.period + seeds / 2) / seeds;

        let (mut fell, mut deferred, mut user) = (Sums::new(), Sums::new(), Sums::new());
        for sampled in &window.sampled {
            for cost in &sampled.costs {
                let of = (cost.direction, cost.context, self.nodes[&cost.node]);
                *fell.entry(of).or_default() += cost.fell;
                *deferred.entry(of).or_default() += cost.deferred;
            }
            for (&(direction, context), samples) in &sampled.user {
                let node = user_mode(recording, known_to);
                *user.entry((direction, context, node)).or_default() += samples;
            }
        }
        // They are of the kernel's instructions, wherever they are taken.
        deferred.extend(user);
        let sum = |of: &Sums| of.values().map(|samples| mean(*samples)).sum();
        let quantities = [recording.quantity(&SAMPLED), recording.quantity(&DEFERRED)];
        let totals = vec![
            Total { quantity: quantities[0], kernel: sum(&fell), user: 0 },
            Total { quantity: quantities[1], kernel: sum(&deferred), user: 0 },
        ];
        recording.blocks.push(Block {
            arm,
            instrument: SAMPLED.instrument.into(),
            index,
            ledger,
            totals,
            entered: 0,
            returned: 0,
            duration_ns: 0,
        });
        for (quantity, sums) in quantities.into_iter().zip([fell, deferred]) {
            let sums = sums.into_iter().filter(|(_, samples)| *samples > 0);
            let costs = sums.map(|((direction, context, node), samples)| Cost {
                block,
                quantity,
                direction,
                context,
                node,
                calls: samples,
                own: mean(samples),
            });
            recording.costs.extend(costs);
        }
        for (direction, insns) in &window.interrupts {
            let mut add = |of, insns: u64| {
                let item = FigureKey::label(direction.as_str());
                recording.add(Subject::Block(block), of, item, insns as f64);
            };
            add(&INTERRUPTS_OFF, insns.off);
            add(&IN_KERNEL, insns.all);
        }
    }
}

/// Samples by direction, context and node.
type Sums = BTreeMap<(Direction, Context, NodeId), u64>;

/// The node of samples in user mode.
fn user_mode(recording: &mut Recording, index: &mut Index) -> NodeId {
    let new = Function {
        name: USER_MODE.into(),
        module: None,
        layer: Some(APPLICATION.into()),
        address: 0,
        size_bytes: 0,
        source: None,
    };
    let function = known(recording, index, new);
    let new = Node { parent: None, function, tail: false };
    index.node(recording, new)
}

/// The function that runs netfilter hooks, and frees the packets that they drop
/// (net/netfilter/core.c).
const HOOKS: &str = "nf_hook_slow";
/// The function that frees a dropped packet: since Linux 6.11, since 5.17, and before.
const FREES: [&str; 3] = ["sk_skb_reason_drop", "kfree_skb_reason", "kfree_skb"];
/// The cause of such packets in a ledger.
const BY_NETFILTER: &str = "dropped by netfilter (kfree_skb below nf_hook_slow)";

/// Add drops by netfilter, which no counter has, to a ledger: packets that it freed according to
/// the calling-context tree, up to the number that is missing.
fn with_netfilter(
    recording: &Recording,
    calls: impl Iterator<Item = (NodeId, u64)>,
    mut ledger: Ledger,
) -> Ledger {
    let known_drops: u64 = ledger.dropped.values().sum();
    let missing = ledger.offered.saturating_sub(ledger.delivered + known_drops);
    if missing == 0 {
        return ledger;
    }
    let name = |node: &Node| base_name(&recording.functions[node.function as usize].name);
    let above = |node: NodeId| {
        let caller = |node: &NodeId| recording.nodes[*node as usize].parent;
        std::iter::successors(caller(&node), caller).map(|n| name(&recording.nodes[n as usize]))
    };
    // In some kernels an nftables chain frees the packets that it drops (NF_DROP_REASON).
    let freed = calls.filter(|(node, _)| {
        FREES.contains(&name(&recording.nodes[*node as usize]))
            && above(*node).any(|caller| caller == HOOKS)
            && !above(*node).any(|caller| FREES.contains(&caller))
    });
    let dropped = freed.map(|(_, calls)| calls).sum::<u64>().min(missing);
    if dropped > 0 {
        ledger.dropped.insert(BY_NETFILTER.into(), dropped);
    }
    ledger
}

/// A function of the kernel, as a recording has it.
pub(crate) fn kernel_function(
    symbols: &SymbolTable,
    layers: &LayerRules,
    symbol: Symbol,
) -> Function {
    if symbol == UNKNOWN {
        return Function {
            name: UNKNOWN_NAME.into(),
            module: None,
            layer: None,
            address: 0,
            size_bytes: 0,
            source: None,
        };
    }
    let symbol = &symbols.symbols()[symbol as usize];
    Function {
        name: symbol.name.clone(),
        module: symbol.module.clone(),
        layer: layers.layer(&symbol.name, symbol.module.as_deref()).map(String::from),
        address: symbol.addr,
        size_bytes: symbol.size,
        source: None,
    }
}

impl Executed<'_> {
    /// The file of a function of user code.
    fn image(&self, symbol: Symbol) -> Option<u32> {
        let user = symbol.checked_sub(FIRST_USER_SYMBOL)?;
        self.user.get(user as usize)?.image
    }

    /// Where a function begins; none of code that no symbol covers.
    fn begin(&self, symbol: Symbol) -> Option<u64> {
        if symbol == UNKNOWN {
            return None;
        }
        match symbol.checked_sub(FIRST_USER_SYMBOL) {
            Some(user) => {
                let symbol = self.user.get(user as usize)?;
                (symbol.size_bytes > 0).then_some(symbol.address)
            }
            None => Some(self.symbols.symbols().get(symbol as usize)?.addr),
        }
    }

    /// The function of a symbol.
    pub(crate) fn function(&self, layers: &LayerRules, symbol: Symbol) -> Function {
        user_function(self.user, symbol)
            .unwrap_or_else(|| kernel_function(self.symbols, layers, symbol))
    }
}

/// A function of user code: its file is its module.
fn user_function(user: &[UserSymbol], symbol: Symbol) -> Option<Function> {
    let symbol = user.get(symbol.checked_sub(FIRST_USER_SYMBOL)? as usize)?;
    Some(Function {
        name: symbol.name.clone(),
        module: Some(symbol.module.clone()),
        layer: Some(APPLICATION.into()),
        address: symbol.address,
        size_bytes: symbol.size_bytes,
        source: None,
    })
}

#[cfg(test)]
mod tests {
    use netplumb_instruments::exact::{CountedCost, Sampled, SampledCost, WithInterruptsOff};

    use super::*;

    /// Check that packets freed by netfilter account for missing packets, up to their number, and
    /// that packets freed elsewhere don't.
    #[test]
    fn netfilter_drops() {
        let mut recording = Recording::default();
        for name in [HOOKS, "kfree_skb_reason", "nft_do_chain", "kfree_skb.part.0"] {
            recording.functions.push(Function {
                name: name.into(),
                module: None,
                layer: None,
                address: 0,
                size_bytes: 0,
                source: None,
            });
        }
        for (parent, function) in [
            (None, 0),
            (Some(0), 1),
            (Some(0), 2),
            (Some(2), 1),
            (Some(0), 3),
            // Below another function that frees, and below no hook.
            (Some(4), 1),
            (None, 1),
        ] {
            recording.nodes.push(Node { parent, function, tail: false });
        }
        let of = |delivered, calls: &[(NodeId, u64)]| {
            let ledger =
                Ledger { offered: 10, delivered, dropped: [("UdpNoPorts".to_string(), 1)].into() };
            with_netfilter(&recording, calls.iter().copied(), ledger)
        };
        let closed = of(4, &[(0, 40), (1, 3), (3, 1), (4, 1), (5, 9), (6, 9)]);
        assert_eq!(closed.dropped[BY_NETFILTER], 5);
        assert!(closed.closes());
        assert_eq!(of(5, &[(1, 9)]).dropped[BY_NETFILTER], 4);
        assert!(!of(5, &[(5, 9), (6, 9)]).closes());
        assert_eq!(of(9, &[(1, 9)]).dropped.len(), 1);
    }

    const LAYERS: &str = "[[rule]]\nlayer = \"network\"\nfunctions = [\"ip_*\"]\n";

    fn node(parent: Option<NodeId>, symbol: Symbol) -> TreeNode {
        TreeNode { parent, symbol, tail: false }
    }

    fn cost(node: NodeId, calls: u64, insns: u64) -> CountedCost {
        CountedCost { direction: Direction::Tx, context: Context::Task, node, calls, insns }
    }

    /// Add the window of a guest to the recording.
    fn guest(
        recording: &mut Recording,
        index: &mut Index,
        kallsyms: &str,
        nodes: &[TreeNode],
        costs: Vec<CountedCost>,
    ) {
        let symbols = SymbolTable::parse(kallsyms.as_bytes()).unwrap();
        let layers = LayerRules::parse(LAYERS).unwrap();
        let window = Window {
            kernel_insns: costs.iter().map(|c| c.insns).sum(),
            costs,
            ..Window::default()
        };
        let executed = Executed { symbols: &symbols, user: &[], nodes };
        let translation = Translation::add(recording, index, &executed, &layers, [&window]);
        translation.add_block(recording, 0, 0, &window, Ledger::default());
    }

    /// Check that guests with different addresses and ids share functions and nodes, and that
    /// different functions stay separate.
    #[test]
    fn guests_are_merged() {
        let mut recording = Recording::default();
        let mut index = Index::default();
        let (recording_, index_) = (&mut recording, &mut index);
        guest(
            recording_,
            index_,
            "1000 T send\n2000 T ip_output\n3000 t xmit [veth]\n4000 t xmit [e1000]\n",
            &[node(None, 0), node(Some(0), 1), node(Some(1), 2)],
            vec![cost(0, 1, 10), cost(1, 1, 20), cost(2, 1, 30)],
        );
        guest(
            recording_,
            index_,
            "7000 T ip_output\n8000 T send\n9000 t xmit [e1000]\n",
            &[node(None, 1), node(Some(0), 0), node(Some(1), 2)],
            vec![cost(0, 1, 11), cost(1, 1, 21), cost(2, 1, 31)],
        );
        let functions: Vec<(&str, Option<&str>, Option<&str>)> = recording
            .functions
            .iter()
            .map(|f| (f.name.as_str(), f.module.as_deref(), f.layer.as_deref()))
            .collect();
        assert_eq!(
            functions,
            [
                ("send", None, None),
                ("ip_output", None, Some("network")),
                ("xmit", Some("veth"), None),
                ("xmit", Some("e1000"), None),
            ]
        );
        assert_eq!(recording.nodes.len(), 4);
        let costs: Vec<(u32, NodeId, u64)> =
            recording.costs.iter().map(|c| (c.block, c.node, c.own)).collect();
        assert_eq!(costs, [(0, 0, 10), (0, 1, 20), (0, 2, 30), (1, 0, 11), (1, 1, 21), (1, 3, 31)]);
    }

    /// Check that nodes without costs, and their order in the guest, leave no trace: a guest runs
    /// more or less before its windows open.
    #[test]
    fn what_has_no_cost_is_not_recorded() {
        let kallsyms = "1000 T send\n2000 T poll\n3000 T xmit\n4000 T open\n";
        let recorded = |nodes: &[TreeNode], costs| {
            let mut recording = Recording::default();
            guest(&mut recording, &mut Index::default(), kallsyms, nodes, costs);
            recording
        };
        let some = recorded(
            &[node(None, 0), node(Some(0), 1), node(Some(0), 2)],
            vec![cost(1, 2, 20), cost(2, 3, 30)],
        );
        let other = recorded(
            &[
                node(None, 3),
                node(None, 0),
                node(Some(1), 2),
                node(Some(1), 3),
                node(Some(1), 1),
                node(Some(0), 1),
            ],
            vec![cost(2, 3, 30), cost(4, 2, 20)],
        );
        assert_eq!(some, other);
        let names = some.functions.iter().map(|f| f.name.as_str());
        assert_eq!(names.collect::<Vec<_>>(), ["send", "poll", "xmit"]);
        assert_eq!((some.nodes.len(), some.costs.len()), (3, 2));
    }

    /// Check that the costs of two static functions of one name, called from one place, are added
    /// up: a recording has room for one.
    #[test]
    fn functions_of_one_name_are_summed() {
        let mut recording = Recording::default();
        guest(
            &mut recording,
            &mut Index::default(),
            "1000 T send\n2000 t poll\n3000 t poll\n",
            &[node(None, 0), node(Some(0), 1), node(Some(0), 2)],
            vec![cost(0, 1, 10), cost(1, 2, 20), cost(2, 3, 30)],
        );
        let costs: Vec<(NodeId, u64, u64)> =
            recording.costs.iter().map(|c| (c.node, c.calls, c.own)).collect();
        assert_eq!(costs, [(0, 1, 10), (1, 5, 50)]);
        assert_eq!(recording.blocks[0].kernel(), 60);
    }

    /// Check that several seeds of one window are one block with one ledger, its costs their mean;
    /// and that samples in user mode are costs of a timer's samples alone.
    #[test]
    fn seeds_are_averaged() {
        let mut recording = Recording::default();
        let mut index = Index::default();
        let window = Window {
            sampled: [10, 13]
                .map(|fell| Sampled {
                    costs: vec![SampledCost {
                        direction: Direction::Tx,
                        context: Context::Task,
                        node: 0,
                        fell,
                        deferred: fell - 4,
                    }],
                    user: [((Direction::Tx, Context::Task), 4)].into(),
                })
                .to_vec(),
            interrupts: [Direction::Tx, Direction::Rx]
                .map(|direction| (direction, WithInterruptsOff { off: 0, all: 7 }))
                .into(),
            ..Window::default()
        };
        let symbols = SymbolTable::parse("1000 T send\n".as_bytes()).unwrap();
        let layers = LayerRules::parse(LAYERS).unwrap();
        let executed = Executed { symbols: &symbols, user: &[], nodes: &[node(None, 0)] };
        let translation =
            Translation::add(&mut recording, &mut index, &executed, &layers, [&window]);
        let ledger = Ledger { offered: 1_000, delivered: 1_000, ..Ledger::default() };
        let sampling = Sampling { period: 100, seeds: vec![7, 8] };
        let at = (0, 0);
        translation.add_samples(&mut recording, &mut index, at, &window, &ledger, &sampling);
        let offered = recording.blocks.iter().map(|b| b.ledger.offered);
        assert_eq!(offered.collect::<Vec<_>>(), [1_000]);
        let costs = recording.costs.iter().map(|c| {
            let function = recording.nodes[c.node as usize].function;
            let name = recording.functions[function as usize].name.as_str();
            (c.quantity, name, c.calls, c.own)
        });
        let [fell, deferred] = [0, 1].map(|n| recording.blocks[0].totals[n]);
        assert_eq!(
            costs.collect::<Vec<_>>(),
            [
                (fell.quantity, "send", 23, 1_150),
                (deferred.quantity, "send", 15, 750),
                (deferred.quantity, USER_MODE, 8, 400),
            ]
        );
        assert_eq!((fell.kernel, fell.user), (1_150, 0));
        assert_eq!((deferred.kernel, deferred.user), (1_150, 0));
        let seeds = recording.scalars_of(&SAMPLE_SEED).map(|s| s.value);
        assert_eq!(seeds.collect::<Vec<_>>(), [7.0, 8.0]);
        // Directions without any are there too.
        let off = recording.scalars_of(&INTERRUPTS_OFF).map(|s| s.value);
        assert_eq!(off.collect::<Vec<_>>(), [0.0, 0.0]);
    }

    /// Check that code without a symbol gets a function with a name of its own.
    #[test]
    fn unknown_code_has_a_name() {
        let mut recording = Recording::default();
        guest(
            &mut recording,
            &mut Index::default(),
            "1000 T send\n",
            &[node(None, 0), node(Some(0), UNKNOWN)],
            vec![cost(0, 1, 10), cost(1, 2, 20)],
        );
        assert_eq!(recording.functions[1].name, UNKNOWN_NAME);
        assert_eq!(recording.functions[1].layer, None);
        assert_eq!(recording.costs[1].own, 20);
    }
}
