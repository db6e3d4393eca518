//! Source lines of measured functions, in the recording.

use std::collections::{BTreeMap, HashMap};

use netplumb_instruments::image::FileLine;
use netplumb_instruments::live::SourceLines;
use netplumb_model::quantity::Subject;
use netplumb_model::recording::{FunctionId, LineCost, Recording, SourceFileId, SourceLine};

use crate::index::Index;
use crate::source_text;

/// Add the lines of all blocks, which were measured in as many windows; the last one may be of two.
pub(super) fn add(recording: &mut Recording, index: &Index, by: &str, found: &SourceLines) {
    for loss in &found.losses {
        recording.add_loss(by, loss.clone());
    }
    for figure in &found.figures {
        recording.add_figure(Subject::Run, figure.clone());
    }
    let known = (0..).zip(recording.source_files.drain(..));
    let mut files: HashMap<String, SourceFileId> = known.map(|(id, path)| (path, id)).collect();
    let numbers: Vec<SourceFileId> = (found.files.iter())
        .map(|path| {
            let next = files.len() as SourceFileId;
            *files.entry(path.clone()).or_insert(next)
        })
        .collect();
    let mut paths: Vec<(SourceFileId, String)> =
        files.into_iter().map(|(path, id)| (id, path)).collect();
    paths.sort_unstable();
    recording.source_files = paths.into_iter().map(|(_, path)| path).collect();
    let source = |(file, line): FileLine| {
        let file = *numbers.get(file as usize)?;
        Some(SourceLine { file, line })
    };
    let functions: Vec<Option<FunctionId>> = (found.functions.iter())
        .map(|(met, _)| index.function(&met.name, met.module.as_deref()))
        .collect();
    for ((_, line), function) in found.functions.iter().zip(&functions) {
        if let (Some(line), Some(function)) = (line.and_then(source), function)
            && let Some(function) = recording.functions.get_mut(*function as usize)
        {
            // Static functions of one name are one function: keep the first definition.
            function.source.get_or_insert(line);
        }
    }
    let Some(last) = recording.blocks.len().checked_sub(1) else {
        return;
    };
    let mut sums: BTreeMap<(u32, FunctionId, SourceLine), u64> = BTreeMap::new();
    for cost in &found.costs {
        let function = functions.get(cost.function as usize).copied().flatten();
        if let (Some(function), Some(line)) = (function, source(cost.line)) {
            let block = cost.window.min(last as u32);
            *sums.entry((block, function, line)).or_default() += cost.own;
        }
    }
    recording.line_costs.extend(
        (sums.into_iter()).map(|((block, function, source), own)| LineCost {
            block,
            function,
            source,
            own,
        }),
    );
    source_text::embed(recording);
}

#[cfg(test)]
mod tests {
    use netplumb_instruments::live::WindowLine;
    use netplumb_model::recording::{Block, Function, Ledger};
    use netplumb_model::timing::Met;

    use super::*;

    fn function(name: &str) -> Function {
        Function {
            name: name.into(),
            module: Some("x".into()),
            layer: None,
            address: 0,
            size_bytes: 0,
            source: None,
        }
    }

    /// Check that lines belong to the recording's functions and files, that lines of a window that
    /// was joined to the one before belong to the earlier one, and that unknown functions have
    /// none.
    #[test]
    fn of_windows() {
        let block = |index| Block {
            arm: 0,
            instrument: "samples".into(),
            index,
            ledger: Ledger::default(),
            totals: Vec::new(),
            entered: 0,
            returned: 0,
            duration_ns: 1,
        };
        let mut recording = Recording {
            functions: vec![function("other"), function("work")],
            source_files: vec!["/b.c".into()],
            blocks: vec![block(0), block(1)],
            ..Recording::default()
        };
        let index = Index::from_recording(&recording);
        let met = |name: &str| Met {
            name: name.into(),
            module: Some("x".into()),
            user: true,
            ..Met::default()
        };
        let cost = |window, function, line, own| WindowLine { window, function, line, own };
        let found = SourceLines {
            files: vec!["/a.c".into(), "/b.c".into()],
            functions: vec![(met("work"), Some((0, 3))), (met("missing"), None)],
            costs: vec![
                cost(0, 0, (0, 4), 10),
                cost(1, 0, (1, 2), 20),
                cost(2, 0, (1, 2), 5),
                cost(2, 1, (1, 2), 7),
            ],
            ..SourceLines::default()
        };
        add(&mut recording, &index, "samples", &found);
        assert_eq!(recording.source_files, ["/b.c", "/a.c"]);
        assert_eq!(recording.source_of(1), Some(("/a.c", 3)));
        let costs: Vec<_> = (recording.line_costs.iter())
            .map(|c| (c.block, c.function, c.source.file, c.source.line, c.own))
            .collect();
        assert_eq!(costs, [(0, 1, 1, 4, 10), (1, 1, 0, 2, 25)]);
    }
}
