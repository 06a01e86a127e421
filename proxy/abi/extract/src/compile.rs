//! Asks a C compiler for numbers: ids, sizes and offsets are what the tree's own headers make them.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::Error;

/// A program that prints numbers.
#[derive(Debug, Default)]
pub(crate) struct Program {
    /// The text before everything.
    head: String,
    lines: Vec<(String, String)>,
    values: Vec<(String, String)>,
}

impl Program {
    /// A program that begins so.
    pub(crate) fn new(head: String) -> Self {
        Self { head, ..Self::default() }
    }

    /// Adds a declaration, on one line; `what` is for errors.
    pub(crate) fn declare(&mut self, what: &str, line: String) {
        self.lines.push((what.to_owned(), line));
    }

    /// Adds an expression; the place of its value among all values.
    pub(crate) fn value(&mut self, what: &str, expr: String) -> usize {
        self.values.push((what.to_owned(), expr));
        self.values.len().saturating_sub(1)
    }

    /// Compiles with `include` before the machine's own headers, and runs.
    pub(crate) fn run(&self, include: &Path) -> Result<Vec<u64>, Error> {
        let text = self.text();
        let work = tempfile::tempdir().map_err(Error::Scratch)?;
        let source = work.path().join("numbers.c");
        let program = work.path().join("numbers");
        fs::write(&source, &text).map_err(Error::Scratch)?;
        let mut compiler = Command::new("cc");
        // The messages are read: no translations, no colours.
        compiler.env("LC_ALL", "C").args([
            "-std=gnu11",
            "-w",
            "-fno-diagnostics-color",
            "-O0",
            "-I",
        ]);
        compiler.arg(include).arg(&source).arg("-o").arg(&program);
        let output = compiler.output().map_err(Error::NoCompiler)?;
        if !output.status.success() {
            return Err(self.explain(&String::from_utf8_lossy(&output.stderr)));
        }
        let output = Command::new(&program).output().map_err(Error::Scratch)?;
        let numbers = String::from_utf8_lossy(&output.stdout);
        let values: Vec<u64> = numbers.lines().filter_map(|line| line.parse().ok()).collect();
        if values.len() == self.values.len() {
            Ok(values)
        } else {
            Err(Error::Numbers { wanted: self.values.len(), got: values.len() })
        }
    }

    fn text(&self) -> String {
        let mut text = format!("{}\n", self.head);
        for (_, line) in &self.lines {
            text.push_str(line);
            text.push('\n');
        }
        text.push_str("int main(void) {\n");
        for (_, expr) in &self.values {
            // A String takes all that is written.
            let _ = writeln!(text, "printf(\"%llu\\n\", (unsigned long long)({expr}));");
        }
        text.push_str("return 0; }\n");
        text
    }

    /// The first error that the compiler tells, with what stands on that line.
    fn explain(&self, errors: &str) -> Error {
        // What stands on each line after the head; the line of main() is nothing of the tables.
        let main = (String::new(), String::new());
        let all: Vec<&(String, String)> =
            self.lines.iter().chain([&main]).chain(&self.values).collect();
        let head = self.head.matches('\n').count().saturating_add(2);
        let found = errors.lines().find_map(|line| {
            let (place, message) = line.split_once(": error: ")?;
            let mut parts = place.rsplitn(3, ':');
            let number: usize = parts.nth(1)?.parse().ok()?;
            // Only errors of the program's own lines name something of the tables.
            let own = parts.next()?.ends_with("numbers.c");
            let what = all.get(number.checked_sub(head)?).filter(|_| own)?;
            Some((what.0.clone(), message.to_owned()))
        });
        match found {
            Some((what, message)) => Error::Compile { what, message },
            None => Error::Headers(errors.lines().take(5).collect::<Vec<_>>().join("\n")),
        }
    }
}
