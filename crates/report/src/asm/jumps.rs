//! Jumps as lines beside a listing.

/// The most jumps drawn beside each other; beyond that, the longest are left out.
const MAX_LANES: usize = 8;

/// A jump between two rows.
struct Jump {
    from: usize,
    to: usize,
    lane: usize,
}

impl Jump {
    fn top(&self) -> usize {
        self.from.min(self.to)
    }

    fn bottom(&self) -> usize {
        self.from.max(self.to)
    }
}

/// The lines beside each row, all of one width. Rows are offsets, in order, and their jump targets.
/// Jumps to offsets without a row are not drawn.
pub(super) fn draw(rows: &[(u64, Option<u64>)]) -> Vec<String> {
    let row_of = |offset: u64| rows.binary_search_by_key(&offset, |(at, _)| *at).ok();
    let mut jumps: Vec<Jump> = (0..)
        .zip(rows)
        .filter_map(|(from, (_, target))| {
            let to = row_of((*target)?)?;
            (to != from).then_some(Jump { from, to, lane: 0 })
        })
        .collect();
    // The shortest are nearest to the text.
    jumps.sort_by_key(|jump| (jump.bottom() - jump.top(), jump.top()));
    let mut lanes: Vec<Vec<(usize, usize)>> = Vec::new();
    jumps.retain_mut(|jump| {
        let (top, bottom) = (jump.top(), jump.bottom());
        let free = |lane: &Vec<(usize, usize)>| lane.iter().all(|(a, b)| bottom < *a || top > *b);
        jump.lane = lanes.iter().position(free).unwrap_or(lanes.len());
        if jump.lane == lanes.len() {
            if lanes.len() == MAX_LANES {
                return false;
            }
            lanes.push(Vec::new());
        }
        lanes[jump.lane].push((top, bottom));
        true
    });
    let width = match lanes.len() {
        0 => 0,
        lanes => 2 * lanes + 1,
    };
    let mut drawn = vec![vec![' '; width]; rows.len()];
    for jump in &jumps {
        let column = width - 3 - 2 * jump.lane;
        for row in &mut drawn[jump.top() + 1..jump.bottom()] {
            row[column] = match row[column] {
                '─' => '┼',
                _ => '│',
            };
        }
        for (row, corner) in [(jump.top(), '┌'), (jump.bottom(), '└')] {
            let cells = &mut drawn[row];
            for cell in &mut cells[column + 1..] {
                *cell = match *cell {
                    ' ' => '─',
                    '│' => '┼',
                    '┌' => '┬',
                    '└' => '┴',
                    other => other,
                };
            }
            cells[column] = corner;
        }
        drawn[jump.to][width - 1] = '►';
    }
    drawn.into_iter().map(String::from_iter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that jumps are drawn to their targets, backwards too, beside each other where they
    /// overlap, and that jumps to elsewhere are not drawn.
    #[test]
    fn drawn() {
        let rows =
            [(0, Some(8)), (2, None), (4, Some(2)), (6, Some(99)), (8, None), (10, Some(10))];
        let wanted = ["┌────", "│ ┌─►", "│ └──", "│    ", "└───►", "     "];
        assert_eq!(draw(&rows), wanted);
        assert_eq!(draw(&[(0, None), (1, None)]), ["", ""]);
        assert!(draw(&[]).is_empty());
    }

    /// Check that the shortest jumps are drawn if there is not enough room for all.
    #[test]
    fn too_many() {
        let rows: Vec<(u64, Option<u64>)> = (0..40).map(|n| (n, Some(39 - n))).collect();
        let drawn = draw(&rows);
        assert!(drawn.iter().all(|row| row.chars().count() == 2 * MAX_LANES + 1));
        assert!(drawn[0].trim().is_empty() && !drawn[19].trim().is_empty());
    }
}
