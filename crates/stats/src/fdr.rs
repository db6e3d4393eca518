//! Many tests at once: Benjamini and Hochberg, "Controlling the False Discovery
//! Rate", J. R. Stat. Soc. B 57 (1995).

/// Which of the p-values are discoveries, with a false discovery rate of at most `rate`.
pub fn discoveries(p: &[f64], rate: f64) -> Vec<bool> {
    let mut order: Vec<usize> = (0..p.len()).filter(|n| p[*n].is_finite()).collect();
    order.sort_by(|a, b| p[*a].total_cmp(&p[*b]));
    let many = order.len() as f64;
    let last = order
        .iter()
        .enumerate()
        .rev()
        .find(|(n, at)| p[**at] <= rate * (*n + 1) as f64 / many)
        .map(|(n, _)| n);
    let mut found = vec![false; p.len()];
    if let Some(last) = last {
        for at in &order[..=last] {
            found[*at] = true;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check the example of the paper's section 3.2: 15 p-values, four discoveries.
    #[test]
    fn the_papers_example() {
        let p = [
            0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262,
            0.5719, 0.6528, 0.7590, 1.0,
        ];
        let found = discoveries(&p, 0.05);
        assert_eq!(found.iter().filter(|f| **f).count(), 4);
        assert!(found[..4].iter().all(|f| *f));
    }

    /// Check that the order does not matter, and that empty lists and NaN are handled.
    #[test]
    fn edges() {
        assert_eq!(discoveries(&[0.9, 0.001], 0.05), [false, true]);
        assert_eq!(discoveries(&[f64::NAN, 0.001], 0.05), [false, true]);
        assert!(discoveries(&[], 0.05).is_empty());
        // A p-value above the line is included if a later one is below it.
        assert_eq!(discoveries(&[0.03, 0.04], 0.05), [true, true]);
    }
}
