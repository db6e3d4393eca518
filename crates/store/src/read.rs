//! Reads a complete recording, and checks its invariants.

use std::path::Path;

use netplumb_model::bench::Hop;
use netplumb_model::loss::Loss;
use netplumb_model::quantity::{FigureKey, Quantity, Scalar, Subject};
use netplumb_model::recording::{
    Arm, Block, BlockHop, Cost, Derivation, Function, Ledger, LineCost, MadeBy, Recording,
    SourceLine, Total,
};
use rusqlite::Connection;

use crate::error::{damaged, reading};
use crate::row::{
    Wrong, count, each, element, get, known, name, name_if_any, numbered, rows, text, text_if_any,
    word,
};
use crate::{StoreError, check, code, nodes, open, samples, span, trace};

/// Read a recording.
///
/// # Errors
/// It is missing, another kind of file, of a later version, or damaged: truncated, changed, or
/// inconsistent. A recording whose writer was interrupted is not an error: it is marked as
/// incomplete.
pub fn read(path: &Path) -> Result<Recording, StoreError> {
    let opened = open::open(path)?;
    let recording = load(&opened.connection).map_err(|wrong| match wrong {
        Wrong::Sqlite(error) => reading(path)(error),
        Wrong::Found(why) => damaged(path, why),
    })?;
    check::check(&recording).map_err(|why| damaged(path, why))?;
    Ok(recording)
}

/// Read all tables.
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
    let environment = rows(c, "environment", "key, value", "key", pair)?;
    recording.environment = environment.into_iter().collect();
    let columns = "instrument, name, unit, kind, repeats, calls, number, label";
    recording.quantities = numbered(c, "quantity", columns, |r| {
        Ok(Quantity {
            instrument: name(r, 1)?,
            name: name(r, 2)?,
            unit: name(r, 3)?,
            kind: word(r, 4)?,
            repeats: word(r, 5)?,
            calls: word(r, 6)?,
            number: name_if_any(r, 7)?,
            label: name_if_any(r, 8)?,
        })
    })?;
    arms(c, &mut recording)?;
    notes(c, &mut recording)?;
    blocks(c, &mut recording)?;
    each(c, "dropped", "block, cause, packets", "block, cause", |_, r| {
        let block = element(&mut recording.blocks, get(r, 0)?, "a block")?;
        block.ledger.dropped.insert(name(r, 1)?, count(r, 2)?);
        Ok(())
    })?;
    recording.source_files = numbered(c, "source_file", "path", |r| name(r, 1))?;
    let columns = "name, module, layer, address, size_bytes, file, line";
    recording.functions = numbered(c, "function", columns, |r| {
        let (file, line): (Option<u32>, Option<u32>) = (get(r, 6)?, get(r, 7)?);
        Ok(Function {
            name: name(r, 1)?,
            module: name_if_any(r, 2)?,
            layer: name_if_any(r, 3)?,
            // The only number that uses all 64 bits: see the schema.
            address: get::<i64>(r, 4)? as u64,
            size_bytes: count(r, 5)?,
            source: file.zip(line).map(|(file, line)| SourceLine { file, line }),
        })
    })?;
    recording.nodes = nodes::load(c)?;
    costs(c, &mut recording)?;
    samples::load(c, &mut recording)?;
    scalars(c, &mut recording)?;
    hops(c, &mut recording)?;
    not_measured(c, &mut recording)?;
    over_budget(c, &mut recording)?;
    let not_tried = rows(c, "not_tried", "setting, reason", "setting", pair)?;
    recording.not_tried = not_tried.into_iter().collect();
    span::spans(c, &mut recording)?;
    span::between(c, &mut recording)?;
    code::load(c, &mut recording)?;
    trace::load(c, &mut recording)?;
    let texts = rows(c, "source_text", "file, text", "file", |r| Ok((get(r, 0)?, text(r, 1)?)))?;
    recording.source_texts = texts.into_iter().collect();
    let (columns, order) = ("block, function, file, line, insns", "block, function, file, line");
    recording.line_costs = rows(c, "line_cost", columns, order, |r| {
        Ok(LineCost {
            block: get(r, 0)?,
            function: get(r, 1)?,
            source: SourceLine { file: get(r, 2)?, line: get(r, 3)? },
            own: count(r, 4)?,
        })
    })?;
    span::load(c, &mut recording)?;
    losses(c, &mut recording)?;
    Ok(recording)
}

fn arms(c: &Connection, recording: &mut Recording) -> Result<(), Wrong> {
    let columns = "name, proto, family, link, forward, size_bytes, made_from, setting, control";
    recording.arms = numbered(c, "arm", columns, |r| {
        Ok(Arm {
            name: text(r, 1)?,
            proto: word(r, 2)?,
            family: word(r, 3)?,
            link: word(r, 4)?,
            forward: get(r, 5)?,
            size_bytes: get(r, 6)?,
            knobs: Default::default(),
            made: made(r)?,
        })
    })?;
    each(c, "knob", "arm, name, value", "arm, name", |_, r| {
        let arm = element(&mut recording.arms, get(r, 0)?, "an arm")?;
        arm.knobs.insert(name(r, 1)?, text(r, 2)?);
        Ok(())
    })
}

fn made(r: &rusqlite::Row<'_>) -> Result<Option<Derivation>, Wrong> {
    let Some(from) = text_if_any(r, 7)? else {
        return Ok(None);
    };
    let by = match text_if_any(r, 8)? {
        None => MadeBy::Seed,
        Some(setting) => {
            MadeBy::Scan { setting, control: get::<Option<bool>>(r, 9)?.unwrap_or_default() }
        }
    };
    Ok(Some(Derivation { from, by }))
}

fn not_measured(c: &Connection, recording: &mut Recording) -> Result<(), Wrong> {
    let (columns, order) = ("instrument, name, reason", "instrument, name");
    each(c, "not_measured", columns, order, |_, r| {
        let not_measured = recording.not_measured.entry(name(r, 0)?).or_default();
        not_measured.insert(text(r, 1)?, text(r, 2)?);
        Ok(())
    })
}

fn over_budget(c: &Connection, recording: &mut Recording) -> Result<(), Wrong> {
    each(c, "over_budget", "instrument, name", "instrument, place", |_, r| {
        let over_budget = recording.over_budget.entry(name(r, 0)?).or_default();
        over_budget.push(name(r, 1)?);
        Ok(())
    })
}

fn losses(c: &Connection, recording: &mut Recording) -> Result<(), Wrong> {
    let (columns, order) = ("cause, count, meaning, instrument", "instrument, cause");
    each(c, "loss", columns, order, |_, r| {
        let instrument = name(r, 3)?;
        let loss = Loss { cause: name(r, 0)?, count: count(r, 1)?, meaning: name(r, 2)? };
        recording.losses.entry(instrument).or_default().push(loss);
        Ok(())
    })
}

/// Notes on arms.
fn notes(c: &Connection, recording: &mut Recording) -> Result<(), Wrong> {
    let (columns, order) = ("arm, kind, key, text", "arm, kind, key");
    each(c, "arm_note", columns, order, |_, r| {
        let arm: u32 = get(r, 0)?;
        element(&mut recording.arms, i64::from(arm), "an arm")?;
        let (kind, key, text) = (name(r, 1)?, name(r, 2)?, text(r, 3)?);
        let notes = recording.notes_of(arm as usize);
        match kind.as_str() {
            FAILED => drop(notes.failed.insert(key, text)),
            FACT => drop(notes.facts.insert(key, text)),
            INERT => drop(notes.inert.insert(key, text)),
            DIAGNOSIS => notes.diagnosis = Some(text),
            IRREGULAR => {
                let goal = key.parse().map_err(|_| {
                    Wrong::Found(format!("invalid goal number `{}`", key.escape_debug()))
                })?;
                notes.irregular.insert(goal, text);
            }
            other => {
                let other = other.escape_debug();
                return Err(Wrong::Found(format!("unknown kind of note `{other}`")));
            }
        }
        Ok(())
    })
}

fn blocks(c: &Connection, recording: &mut Recording) -> Result<(), Wrong> {
    let columns = "arm, instrument, repetition, offered, delivered, entered, returned, duration_ns";
    recording.blocks = numbered(c, "block", columns, |r| {
        Ok(Block {
            arm: get(r, 1)?,
            instrument: name(r, 2)?,
            index: get(r, 3)?,
            ledger: Ledger {
                offered: count(r, 4)?,
                delivered: count(r, 5)?,
                dropped: Default::default(),
            },
            totals: Vec::new(),
            entered: count(r, 6)?,
            returned: count(r, 7)?,
            duration_ns: count(r, 8)?,
        })
    })?;
    let (columns, order) = ("block, quantity, kernel, user", "block, quantity");
    each(c, "total", columns, order, |_, r| {
        let block = element(&mut recording.blocks, get(r, 0)?, "a block")?;
        block.totals.push(Total { quantity: get(r, 1)?, kernel: count(r, 2)?, user: count(r, 3)? });
        Ok(())
    })
}

fn costs(c: &Connection, recording: &mut Recording) -> Result<(), Wrong> {
    let (columns, order) = (
        "block, quantity, direction, context, node, calls, own",
        "block, quantity, direction, context, node",
    );
    recording.costs = rows(c, "cost", columns, order, |r| {
        Ok(Cost {
            block: get(r, 0)?,
            quantity: get(r, 1)?,
            direction: word(r, 2)?,
            context: word(r, 3)?,
            node: get(r, 4)?,
            calls: count(r, 5)?,
            own: count(r, 6)?,
        })
    })?;
    Ok(())
}

fn scalars(c: &Connection, recording: &mut Recording) -> Result<(), Wrong> {
    let columns = "block, arm, quantity, number, label, value";
    recording.scalars = rows(c, "scalar", columns, "rowid", |r| {
        Ok(Scalar {
            of: match (get(r, 0)?, get(r, 1)?) {
                (None, None) => Subject::Run,
                (None, Some(arm)) => Subject::Arm(arm),
                (Some(block), None) => Subject::Block(block),
                (Some(_), Some(_)) => {
                    return Err(Wrong::Found("both a block and an arm".into()));
                }
            },
            quantity: get(r, 2)?,
            item: FigureKey { number: get(r, 3)?, label: name_if_any(r, 4)? },
            value: known(r, 5)?,
        })
    })?;
    Ok(())
}

fn hops(c: &Connection, recording: &mut Recording) -> Result<(), Wrong> {
    let (columns, order) = ("block, place, name, entered, \"left\"", "block, place");
    // Indices of hops, by block and place.
    let mut at = std::collections::HashMap::new();
    each(c, "hop", columns, order, |number, r| {
        let (block, place): (u32, u32) = (get(r, 0)?, get(r, 1)?);
        element(&mut recording.blocks, i64::from(block), "a block")?;
        at.insert((block, place), number);
        recording.hops.push(BlockHop {
            block,
            hop: Hop {
                name: name(r, 2)?,
                entered: count(r, 3)?,
                left: count(r, 4)?,
                dropped: Default::default(),
            },
        });
        Ok(())
    })?;
    let (columns, order) = ("block, place, cause, packets", "block, place, cause");
    each(c, "hop_dropped", columns, order, |_, r| {
        let key: (u32, u32) = (get(r, 0)?, get(r, 1)?);
        let Some(hop) = at.get(&key) else {
            let (block, place) = key;
            return Err(Wrong::Found(format!(
                "dangling reference to hop {place} of block {block}"
            )));
        };
        let dropped = &mut recording.hops[*hop].hop.dropped;
        dropped.insert(name(r, 2)?, count(r, 3)?);
        Ok(())
    })
}

/// Kinds of notes on an arm, as stored.
pub(crate) const FAILED: &str = "failed";
pub(crate) const FACT: &str = "fact";
pub(crate) const INERT: &str = "inert";
pub(crate) const DIAGNOSIS: &str = "diagnosis";
pub(crate) const IRREGULAR: &str = "irregular";
