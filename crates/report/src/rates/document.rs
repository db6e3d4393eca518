//! The document of a bench.

use std::rc::Rc;

use netplumb_model::experiment::Experiment;
use netplumb_model::recording::Recording;

use super::explain::{differences, explained};
use super::trust::trust;
use super::{ArmRow, NAME_LETTERS, arms, bars, blocks, columns, data, details};
use super::{explain, flows, latency, results, search, swept};
use crate::document::Document;
use crate::number::printable;
use crate::page::PagePart;
use crate::section::Section;

const SETTING_LETTERS: usize = 400;

/// A bench: its arms, losses first, and their causes; what a packet costs; and where packets went.
/// Details are of arms that lost packets or are invalid; with `all`, of every arm and without limit.
pub fn document<'r>(
    recording: &'r Recording,
    experiment: Option<&'r Experiment>,
    all: bool,
) -> Document<'r> {
    let arms: Vec<ArmRow<'r>> = arms(recording).into_iter().map(Rc::new).collect();
    let paths = explained(recording);
    let trust = trust(recording, &arms);
    let setting = recording.environment.get("bench.setting");
    let setting = setting.map(|setting| printable(setting, SETTING_LETTERS));
    // In a search, blocks are trials, and lose packets on purpose.
    let (searched, plain): (Vec<_>, Vec<_>) =
        arms.iter().cloned().partition(|arm| !arm.goals.is_empty());
    let found = searched.iter().flat_map(|arm| results::found(arm));
    let found = results::summary(&plain).into_iter().chain(found);
    let results = found.chain(explain::sentences(&paths)).collect();
    let warnings = plain.iter().filter_map(|arm| results::absent(arm)).collect();
    let (absent, shown): (Vec<_>, Vec<_>) =
        plain.iter().cloned().partition(|arm| arm.failed.is_some());
    let mut sections = vec![
        Section::data("arms", data::arms(&arms)),
        Section::data("blocks", data::blocks(recording)),
        Section::data("explained", paths.clone()),
        Section::data("differences", differences(&paths)),
        rates(recording, experiment, &plain, &searched, &shown, all),
        Section::words(details::invalid(&searched, all)).drawn(Vec::new),
        search::section(&arms),
        latency::section(&shown),
    ];
    let paths: Vec<_> = paths.into_iter().map(Rc::new).collect();
    sections.extend(explain::sections(recording, &paths, all));
    let absent = Section::words(details::unavailable(&absent)).heading("unavailable:");
    sections.push(absent.drawn(Vec::new));
    sections.push(flows::section(recording, plain, searched));
    Document::new(recording, experiment, "How fast packets go", sections, trust)
        .title("How fast packets go")
        .headline(setting.into_iter().collect())
        .results(results)
        .warnings(warnings)
        .rows_of_csv(blocks::section(recording))
}

/// The rates of arms, with details of some; on the page as bars, with charts of what was swept.
fn rates<'r>(
    recording: &'r Recording,
    experiment: Option<&'r Experiment>,
    plain: &[ArmRow<'r>],
    searched: &[ArmRow<'r>],
    shown: &[ArmRow<'r>],
    all: bool,
) -> Section<'r> {
    let [of_table, of_page, of_search] = [shown, plain, searched].map(<[ArmRow<'r>]>::to_vec);
    let has_figures = experiment.is_some_and(|experiment| !experiment.figures.is_empty());
    Section::rows(NAME_LETTERS, move |_| columns::table(&of_table))
        .sentences(details::details(shown, all))
        .place("rates", "Rates")
        .drawn(move || {
            let rates = bars::rates(&of_page, &of_search);
            let rates = (!rates.arms.is_empty()).then_some(PagePart::Rates(rates));
            let charts = if has_figures { Vec::new() } else { swept::charts(&of_page, recording) };
            let charts = (!charts.is_empty()).then_some(PagePart::Charts { charts });
            rates.into_iter().chain(charts).collect()
        })
}
