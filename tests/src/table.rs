//! Tables for people: the first column to the left, the others to the right.

use std::fmt;

/// Rows of cells; the first row is the head.
#[derive(Clone, Debug, Default)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with this head.
    pub fn new(head: &[&str]) -> Self {
        let mut table = Self::default();
        table.row(head);
        table
    }

    /// Adds a row.
    pub fn row<S: ToString>(&mut self, cells: &[S]) {
        self.rows.push(cells.iter().map(ToString::to_string).collect());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for row in &self.rows {
            let mut line = String::new();
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                line.push_str(&match column {
                    0 => format!("{cell:<width$}"),
                    _ => format!("  {cell:>width$}"),
                });
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::new(&["", "native", "x"]);
        table.row(&["open", "33", "µ"]);
        table.row(&["alloc_pd", "1234567"]);
        let lines = "           native  x\n\
                     open           33  µ\n\
                     alloc_pd  1234567\n";
        assert_eq!(table.to_string(), lines);
    }
}
