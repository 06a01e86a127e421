//! Figures of several rounds: a row for each name, a column for each place or build.

use super::median;

/// A figure and its name.
pub(super) type Figure = (String, f64);

/// Rows in the order in which their names first come.
#[derive(Clone, Debug, Default)]
pub(super) struct Rounds(Vec<(String, Vec<Vec<f64>>)>);

impl Rounds {
    /// Adds a round's figures to a column.
    pub(super) fn add(&mut self, column: usize, figures: impl IntoIterator<Item = Figure>) {
        for (name, figure) in figures {
            let at = self.0.iter().position(|(known, _)| *known == name);
            let at = at.unwrap_or_else(|| {
                self.0.push((name, Vec::new()));
                self.0.len() - 1
            });
            if let Some((_, columns)) = self.0.get_mut(at) {
                columns.resize(columns.len().max(column + 1), Vec::new());
                columns.iter_mut().skip(column).take(1).for_each(|of| of.push(figure));
            }
        }
    }

    /// Each row's name and its columns' figures, round by round.
    pub(super) fn rows(&self) -> impl Iterator<Item = (&str, &[Vec<f64>])> {
        self.0.iter().map(|(name, columns)| (&**name, &**columns))
    }

    /// Each row's name and its columns' medians.
    pub(super) fn medians(&self) -> impl Iterator<Item = (&str, Vec<f64>)> {
        let of = |values: &Vec<f64>| median(&mut values.clone()).unwrap_or(f64::NAN);
        self.rows().map(move |(name, columns)| (name, columns.iter().map(of).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_keep_their_order_and_columns_their_rounds() {
        let mut rounds = Rounds::default();
        for round in [1.0, 3.0, 2.0] {
            rounds.add(1, [("open".to_owned(), round), ("fork".to_owned(), 9.0)]);
            rounds.add(0, [("fork".to_owned(), round)]);
        }
        let medians: Vec<_> = rounds.medians().collect();
        assert_eq!(medians.len(), 2);
        assert_eq!(medians[1], ("fork", vec![2.0, 9.0]));
        assert!(medians[0].0 == "open" && medians[0].1[0].is_nan());
        assert_eq!(rounds.rows().next(), Some(("open", &[vec![], vec![1.0, 3.0, 2.0]][..])));
    }
}
