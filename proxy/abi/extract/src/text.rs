//! C source as text: comments and preprocessor directives out of the way, calls of macros, and the
//! bodies of structures.
//!
//! The kernel declares its tables by calls of macros outside of functions, which a C parser takes
//! for broken declarations. So no grammar is used here: balanced brackets, names and commas are all
//! that the tables need, and a compiler reads what is between them.

use std::path::PathBuf;

/// A source file.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    /// The path in the tree.
    pub(crate) path: PathBuf,
    /// The text without comments and directives. Every line is where it was.
    pub(crate) code: String,
    /// `#define NAME...`, continued lines joined: the text after `#define`.
    pub(crate) defines: Vec<String>,
}

/// A call of a macro.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    /// The macro.
    pub(crate) name: String,
    /// What stands between the commas, with single spaces.
    pub(crate) args: Vec<String>,
    /// The line of the name, from 1.
    pub(crate) line: usize,
}

/// A definition with a body: `struct NAME {...}`, `NAME[] = {...}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Body {
    /// The name.
    pub(crate) name: String,
    /// What stands between the brackets.
    pub(crate) inside: String,
}

impl Source {
    /// Takes a file's text apart.
    pub(crate) fn new(path: PathBuf, text: &str) -> Self {
        let text = without_comments(text);
        let mut code = String::with_capacity(text.len());
        let mut defines = Vec::new();
        let mut lines = text.lines();
        let mut conditions = Conditions::default();
        while let Some(line) = lines.next() {
            if !line.trim_start().starts_with('#') {
                if conditions.hold() {
                    code.push_str(line);
                }
                code.push('\n');
                continue;
            }
            let mut directive = line.to_owned();
            code.push('\n');
            while directive.ends_with('\\') {
                directive.pop();
                directive.push_str(lines.next().unwrap_or_default());
                code.push('\n');
            }
            let directive = directive.trim_start().trim_start_matches('#').trim_start();
            conditions.step(directive);
            if let Some(define) = directive.strip_prefix("define ").filter(|_| conditions.hold()) {
                defines.push(tidy(define));
            }
        }
        Self { path, code, defines }
    }

    /// The calls of macros whose names `wanted` accepts, at any depth.
    pub(crate) fn calls(&self, wanted: impl Fn(&str) -> bool) -> Vec<Call> {
        let mut line = Lines::default();
        names(&self.code)
            .filter(|(_, name)| wanted(name))
            .filter_map(|(at, name)| {
                let after = self.code.get(at.saturating_add(name.len())..)?;
                let inside = bracketed(after.trim_start(), '(')?;
                let args = split(inside, ',');
                Some(Call { name: name.to_owned(), args, line: line.of(&self.code, at) })
            })
            .collect()
    }

    /// The definition of a structure, union or enum: `struct NAME { ... }`.
    pub(crate) fn body_of(&self, keyword: &str, name: &str) -> Option<String> {
        self.bodies(keyword).into_iter().find(|body| body.name == name).map(|body| body.inside)
    }

    /// All named definitions of a keyword (`struct`, `enum`), in order.
    pub(crate) fn bodies(&self, keyword: &str) -> Vec<Body> {
        names(&self.code)
            .filter(|(_, name)| *name == keyword)
            .filter_map(|(at, name)| {
                let after = self.code.get(at.saturating_add(name.len())..)?.trim_start();
                let (_, tag) = names(after).next().filter(|(at, _)| *at == 0)?;
                let inside = bracketed(after.get(tag.len()..)?.trim_start(), '{')?;
                Some(Body { name: tag.to_owned(), inside: inside.to_owned() })
            })
            .collect()
    }

    /// The initialiser of an array: `NAME[...] = { ... }`.
    pub(crate) fn array(&self, array: &str) -> Option<String> {
        names(&self.code).filter(|(_, name)| *name == array).find_map(|(at, name)| {
            let after = self.code.get(at.saturating_add(name.len())..)?.trim_start();
            let dimension = bracketed(after, '[')?;
            let after = after.get(dimension.len().saturating_add(2)..)?.trim_start();
            let inside = bracketed(after.strip_prefix('=')?.trim_start(), '{')?;
            Some(tidy(inside))
        })
    }
}

/// The conditions around a line. Only one is decided, since programs never see what is meant for the
/// kernel; all others may hold, so that no configuration's tables are missed.
#[derive(Debug, Default)]
struct Conditions(Vec<bool>);

impl Conditions {
    fn hold(&self) -> bool {
        self.0.iter().all(|holds| *holds)
    }

    fn step(&mut self, directive: &str) {
        let words: Vec<&str> = directive.split_whitespace().collect();
        match words.as_slice() {
            ["ifdef", "__KERNEL__"] => self.0.push(false),
            [word, ..] if word.starts_with("if") => self.0.push(true),
            ["else", ..] => {
                if let Some(last) = self.0.last_mut() {
                    *last = true;
                }
            }
            ["endif", ..] => {
                self.0.pop();
            }
            _ => {}
        }
    }
}

/// The call that a text consists of: `NAME(...)`.
pub(crate) fn call(text: &str) -> Option<Call> {
    let text = text.trim();
    let (_, name) = names(text).next().filter(|(at, _)| *at == 0)?;
    let after = text.get(name.len()..)?.trim_start();
    let inside = bracketed(after, '(')?;
    // Nothing may follow.
    (after.len() == inside.len().saturating_add(2)).then(|| Call {
        name: name.to_owned(),
        args: split(inside, ','),
        line: 1,
    })
}

/// Numbers of lines, for positions that only grow.
#[derive(Debug, Default)]
struct Lines {
    at: usize,
    before: usize,
}

impl Lines {
    fn of(&mut self, text: &str, at: usize) -> usize {
        let between = text.get(self.at..at).unwrap_or_default();
        self.before = self.before.saturating_add(between.matches('\n').count());
        self.at = at;
        self.before.saturating_add(1)
    }
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// The identifiers of a text, with their positions. What is in quotes is none.
pub(crate) fn names(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut rest = text.char_indices().peekable();
    std::iter::from_fn(move || {
        while let Some((at, c)) = rest.next() {
            if c == '"' || c == '\'' {
                let mut escaped = false;
                for (_, inside) in rest.by_ref() {
                    if inside == c && !escaped {
                        break;
                    }
                    escaped = inside == '\\' && !escaped;
                }
            } else if is_word(c) {
                let mut end = at.saturating_add(c.len_utf8());
                while let Some((next, _)) = rest.next_if(|(_, c)| is_word(*c)) {
                    end = next.saturating_add(1);
                }
                if !c.is_ascii_digit() {
                    return text.get(at..end).map(|name| (at, name));
                }
            }
        }
        None
    })
}

/// What is between a text's first bracket, which must be `open`, and the one that closes it.
pub(crate) fn bracketed(text: &str, open: char) -> Option<&str> {
    if !text.starts_with(open) {
        return None;
    }
    let mut walk = Walk::default();
    let end = text.char_indices().find(|(_, c)| walk.step(*c) && walk.depth == 0)?;
    text.get(1..end.0)
}

/// The parts between separators that are in no bracket and no quotes, tidied; an empty last part
/// (after a trailing comma) is none.
pub(crate) fn split(text: &str, separator: char) -> Vec<String> {
    let mut walk = Walk::default();
    let mut parts = Vec::new();
    let mut from = 0;
    for (at, c) in text.char_indices() {
        if walk.step(c) && walk.depth == 0 && c == separator {
            parts.push(tidy(text.get(from..at).unwrap_or_default()));
            from = at.saturating_add(1);
        }
    }
    let last = tidy(text.get(from..).unwrap_or_default());
    if !last.is_empty() {
        parts.push(last);
    }
    parts
}

/// Where in a text a walk is: how deep in brackets, and whether in quotes.
#[derive(Debug, Default)]
struct Walk {
    depth: usize,
    quote: Option<char>,
    escaped: bool,
}

impl Walk {
    /// Takes one character; true if the character is code and not in quotes.
    fn step(&mut self, c: char) -> bool {
        if let Some(quote) = self.quote {
            if c == quote && !self.escaped {
                self.quote = None;
            }
            self.escaped = c == '\\' && !self.escaped;
            return false;
        }
        match c {
            '"' | '\'' => self.quote = Some(c),
            '(' | '[' | '{' => self.depth = self.depth.saturating_add(1),
            ')' | ']' | '}' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        true
    }
}

/// One line, with one space where there was white space, and none inside of brackets.
pub(crate) fn tidy(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for word in text.split_whitespace() {
        let glued = out.ends_with(['(', '[']) || word.starts_with([')', ']', ',']);
        if !out.is_empty() && !glued {
            out.push(' ');
        }
        out.push_str(word);
    }
    out
}

/// The text with spaces in place of comments; line ends stay.
fn without_comments(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    let mut quote = None;
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(_), '\\') => {
                out.push(c);
                out.extend(chars.next());
            }
            (Some(end), _) => {
                out.push(c);
                if c == end || c == '\n' {
                    quote = None;
                }
            }
            (None, '/') if chars.peek() == Some(&'*') => {
                chars.next();
                out.push(' ');
                let mut last = ' ';
                for c in chars.by_ref() {
                    if c == '\n' {
                        out.push(c);
                    }
                    if last == '*' && c == '/' {
                        break;
                    }
                    last = c;
                }
            }
            (None, '/') if chars.peek() == Some(&'/') => {
                while chars.next_if(|c| *c != '\n').is_some() {}
            }
            (None, _) => {
                if c == '"' || c == '\'' {
                    quote = Some(c);
                }
                out.push(c);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> Source {
        Source::new("x.c".into(), text)
    }

    #[test]
    fn calls_are_found_with_their_lines_and_arguments() {
        let source = source(
            "/* TABLE(no) */\n#define TABLE(x) \\\n\tNOT(x)\nconst char *s = \"TABLE(no)\";\n\
             TABLE(\n\tONE(A, B),  // TABLE(no)\n\tsizeof(u8[2]),\n);\nTABLE;\n",
        );
        let calls = source.calls(|name| name == "TABLE");
        assert_eq!(calls.len(), 1, "{calls:?}");
        assert_eq!(calls[0].line, 5);
        assert_eq!(calls[0].args, ["ONE(A, B)", "sizeof(u8[2])"]);
        assert_eq!(source.defines, ["TABLE(x) NOT(x)"]);
    }

    #[test]
    fn a_text_is_one_call_or_none() {
        assert_eq!(call(" F(a, \"b,)\") ").unwrap().args, ["a", "\"b,)\""]);
        assert_eq!(call("F(a) + 1"), None);
        assert_eq!(call("&F"), None);
        assert_eq!(call("F(a"), None);
    }

    #[test]
    fn bodies_are_those_of_definitions() {
        let source = source(
            "struct one;\nstruct two { u8 a; struct { u8 b; } c; };\nstruct two *f(struct two *x)\n{\n}\n\
             static const struct spec list[] = {\n\t[1] = { .x = 1 },\n};\nf(list[1]);\n",
        );
        let bodies = source.bodies("struct");
        assert_eq!(bodies.len(), 1, "{bodies:?}");
        assert_eq!(source.body_of("struct", "two").unwrap().trim(), "u8 a; struct { u8 b; } c;");
        assert_eq!(source.array("list").unwrap(), "[1] = { .x = 1 },");
        assert_eq!(source.array("none"), None);
    }

    #[test]
    fn what_is_the_kernels_alone_is_not_seen() {
        let source = source(
            "#if A\n#ifdef __KERNEL__\nKERNEL(1)\n#define K 1\n#else\nUSER(2)\n#endif\n#else\nUSER(3)\n#endif\nUSER(4)\n",
        );
        let calls = source.calls(|name| name == "KERNEL" || name == "USER");
        let args: Vec<&str> = calls.iter().map(|call| call.args[0].as_str()).collect();
        assert_eq!(args, ["2", "3", "4"]);
        assert!(source.defines.is_empty());
    }

    #[test]
    fn quotes_hide_brackets_and_comments() {
        assert_eq!(
            without_comments("a \"/*\" b /* c\nd */ e '\\'' // f\ng"),
            "a \"/*\" b  \n e '\\'' \ng"
        );
        assert_eq!(split("'(', \"\\\"\", x", ','), ["'('", "\"\\\"\"", "x"]);
    }
}
