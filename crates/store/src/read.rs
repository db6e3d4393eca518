//! Reading a recording whole, with its invariants checked.

use std::path::Path;

use netplumb_model::recording::{
    Arm, Block, Cost, Function, Ledger, LineCost, Loss, Node, Recording, SourceLine,
};
use rusqlite::Connection;

use crate::error::{damaged, reading};
use crate::row::{Wrong, count, each, get, name, name_if_any, numbered, rows, text, word};
use crate::{StoreError, check, open, timed};

/// Read a recording.
///
/// # Errors
/// It is missing, some other file, of a later version, or damaged: cut short, changed, or
/// such that its figures contradict each other. One that was cut off while being written is
/// no error: it is incomplete, and says so.
pub fn read(path: &Path) -> Result<Recording, StoreError> {
    let opened = open::open(path)?;
    let recording = load(&opened.connection).map_err(|wrong| match wrong {
        Wrong::Sqlite(error) => reading(path)(error),
        Wrong::Found(why) => damaged(path, why),
    })?;
    check::check(&recording).map_err(|why| damaged(path, why))?;
    Ok(recording)
}

fn load(c: &Connection) -> Result<Recording, Wrong> {
    let mut recording = Recording::default();
    each(c, "recording", "key, value", "key", |_, r| {
        match name(r, 0)?.as_str() {
            "complete" => recording.complete = text(r, 1)? == "yes",
            "experiment" => recording.experiment_toml = text(r, 1)?,
            _ => {}
        }
        Ok(())
    })?;
    let pair = |r: &rusqlite::Row<'_>| Ok((text(r, 0)?, text(r, 1)?));
    let facts = rows(c, "environment", "key, value", "key", pair)?;
    recording.environment = facts.into_iter().collect();
    let columns = "name, proto, family, link, forward, size_bytes";
    recording.arms = numbered(c, "arm", columns, |r| {
        Ok(Arm {
            name: text(r, 1)?,
            proto: word(r, 2)?,
            family: word(r, 3)?,
            link: word(r, 4)?,
            forward: get(r, 5)?,
            size_bytes: get(r, 6)?,
            knobs: Default::default(),
        })
    })?;
    each(c, "knob", "arm, name, value", "arm, name", |_, r| {
        let arm = of(&mut recording.arms, get(r, 0)?, "an arm")?;
        arm.knobs.insert(name(r, 1)?, text(r, 2)?);
        Ok(())
    })?;
    let columns = "arm, repetition, offered, delivered, kernel_insns, user_insns, entered, \
                   returned, duration_ns";
    recording.blocks = numbered(c, "block", columns, |r| {
        Ok(Block {
            arm: get(r, 1)?,
            index: get(r, 2)?,
            ledger: Ledger {
                offered: count(r, 3)?,
                delivered: count(r, 4)?,
                dropped: Default::default(),
            },
            kernel_insns: count(r, 5)?,
            user_insns: count(r, 6)?,
            entered: count(r, 7)?,
            returned: count(r, 8)?,
            duration_ns: count(r, 9)?,
        })
    })?;
    each(
        c,
        "dropped",
        "block, cause, packets",
        "block, cause",
        |_, r| {
            let block = of(&mut recording.blocks, get(r, 0)?, "a block")?;
            block.ledger.dropped.insert(name(r, 1)?, count(r, 2)?);
            Ok(())
        },
    )?;
    recording.source_files = numbered(c, "source_file", "path", |r| name(r, 1))?;
    let columns = "name, module, layer, address, size_bytes, file, line";
    recording.functions = numbered(c, "function", columns, |r| {
        let (file, line): (Option<u32>, Option<u32>) = (get(r, 6)?, get(r, 7)?);
        Ok(Function {
            name: name(r, 1)?,
            module: name_if_any(r, 2)?,
            layer: name_if_any(r, 3)?,
            // The one number that is as large as can be: see the schema.
            address: get::<i64>(r, 4)? as u64,
            size_bytes: count(r, 5)?,
            source: file.zip(line).map(|(file, line)| SourceLine { file, line }),
        })
    })?;
    recording.nodes = numbered(c, "node", "parent, function, tail", |r| {
        Ok(Node {
            parent: get(r, 1)?,
            function: get(r, 2)?,
            tail: get(r, 3)?,
        })
    })?;
    let (columns, order) = (
        "block, direction, context, node, calls, self_insns",
        "block, direction, context, node",
    );
    recording.costs = rows(c, "cost", columns, order, |r| {
        Ok(Cost {
            block: get(r, 0)?,
            direction: word(r, 1)?,
            context: word(r, 2)?,
            node: get(r, 3)?,
            calls: count(r, 4)?,
            self_insns: count(r, 5)?,
        })
    })?;
    let (columns, order) = (
        "block, function, file, line, insns",
        "block, function, file, line",
    );
    recording.line_costs = rows(c, "line_cost", columns, order, |r| {
        Ok(LineCost {
            block: get(r, 0)?,
            function: get(r, 1)?,
            source: SourceLine {
                file: get(r, 2)?,
                line: get(r, 3)?,
            },
            insns: count(r, 4)?,
        })
    })?;
    timed::load(c, &mut recording)?;
    recording.losses = rows(c, "loss", "cause, count, meaning", "cause", |r| {
        Ok(Loss {
            cause: name(r, 0)?,
            count: count(r, 1)?,
            meaning: name(r, 2)?,
        })
    })?;
    Ok(recording)
}

/// What a row is about, by its number.
pub(crate) fn of<'a, T>(all: &'a mut [T], id: i64, what: &str) -> Result<&'a mut T, Wrong> {
    usize::try_from(id)
        .ok()
        .and_then(|id| all.get_mut(id))
        .ok_or_else(|| Wrong::Found(format!("it names {what} {id}, which is not there")))
}
