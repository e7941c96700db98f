//! How many cells are right: a row for each fault, a column for each number of failed nodes.

use std::fmt;
use std::io::Write as _;

#[derive(Debug)]
pub(crate) struct Table {
    title: String,
    nodes: usize,
    rows: Vec<Row>,
}

#[derive(Debug)]
struct Row {
    name: &'static str,
    /// By the number of failed nodes: cells that are right, and all.
    cells: Vec<(usize, usize)>,
    wrong: Vec<String>,
}

impl Table {
    pub(crate) const fn new(title: String, nodes: usize) -> Self {
        Self { title, nodes, rows: Vec::new() }
    }

    /// One table of the first row of each, then the second row of each, and so on.
    pub(crate) fn interleave(tables: Vec<Self>) -> Self {
        let mut tables = tables.into_iter();
        let mut whole = tables.next().expect("a table");
        let mut rows: Vec<_> = vec![whole.rows.into_iter()];
        rows.extend(tables.map(|table| table.rows.into_iter()));
        whole.rows = Vec::new();
        loop {
            let next: Vec<Row> = rows.iter_mut().filter_map(Iterator::next).collect();
            if next.is_empty() {
                return whole;
            }
            whole.rows.extend(next);
        }
    }

    pub(crate) fn begin_row(&mut self, name: &'static str) {
        let cells = vec![(0, 0); self.nodes + 1];
        self.rows.push(Row { name, cells, wrong: Vec::new() });
    }

    /// Counts a cell of the row begun last; an error says what is wrong.
    pub(crate) fn count(&mut self, failed: usize, outcome: Result<(), String>) {
        let row = self.rows.last_mut().expect("a row was begun");
        let (right, all) = &mut row.cells[failed];
        *all += 1;
        match outcome {
            Ok(()) => *right += 1,
            Err(wrong) => row.wrong.push(wrong),
        }
    }

    /// Prints the table, and fails if a cell is wrong.
    pub(crate) fn conclude(self) {
        // Past the test runner, which would keep the output of a test that passes for itself.
        std::io::stdout().write_all(self.to_string().as_bytes()).unwrap();
        let wrong: Vec<_> = self.rows.iter().flat_map(|row| &row.wrong).collect();
        assert!(wrong.is_empty(), "{} cells are wrong: {wrong:#?}", wrong.len());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = 1 + self.rows.iter().map(|row| row.name.len()).max().unwrap_or_default();
        let all = || self.rows.iter().flat_map(|row| &row.cells);
        let (right, cells) = all().fold((0, 0), |sum, cell| (sum.0 + cell.0, sum.1 + cell.1));
        writeln!(f, "\n{}: {right} of {cells} cells are right", self.title)?;
        write!(f, "{:width$}", "failed nodes:")?;
        for failed in 0..=self.nodes {
            write!(f, "{failed:>7}")?;
        }
        writeln!(f)?;
        for row in &self.rows {
            write!(f, "{:width$}", row.name)?;
            for (right, all) in &row.cells {
                write!(f, "{:>7}", format!("{right}/{all}"))?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
