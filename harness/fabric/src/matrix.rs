//! The matrix of all paths, rail by rail and rank by rank: for a terminal, and as one page that needs
//! nothing else.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::outcome::Changes;
use crate::outcome::Outcome;
use crate::outcome::PathView;

/// With more ranks than this, a cell in the terminal is one character.
const WIDE: usize = 12;
/// With more ranks than this, only ranks with bad paths are shown.
const MOST: usize = 256;
/// Causes beside a rail's matrix; the cells have all.
const LISTED: usize = 100;

type Cells<'a> = BTreeMap<(u32, u32), &'a PathView>;

fn cells(outcome: &Outcome, rail: usize) -> Cells<'_> {
    let of = outcome.paths.iter().filter(|path| path.rail == rail);
    of.map(|path| ((path.from, path.to), path)).collect()
}

/// The ranks that are shown.
fn ranks(outcome: &Outcome) -> Vec<u32> {
    let all: Vec<u32> = outcome.hosts.keys().copied().collect();
    if all.len() <= MOST {
        return all;
    }
    let bad = |rank: &u32| {
        let of = |path: &PathView| !path.good && (path.from == *rank || path.to == *rank);
        outcome.paths.iter().any(of)
    };
    all.into_iter().filter(bad).take(MOST).collect()
}

/// The best that a path of this rail reaches.
fn best(cells: &Cells<'_>) -> f64 {
    cells.values().filter_map(|path| path.gbps).fold(0.0, f64::max)
}

/// Tenths of the best, 0 to 9.
fn tenths(gbps: f64, best: f64) -> u8 {
    let tenths = (0..9_u8).filter(|n| gbps / best > (f64::from(*n) + 1.0) / 10.0);
    u8::try_from(tenths.count()).unwrap_or(9)
}

/// For a terminal.
pub(crate) fn text(outcome: &Outcome) -> String {
    let ranks = ranks(outcome);
    let mut text = String::new();
    for rail in 0..outcome.rails {
        let cells = cells(outcome, rail);
        let best = best(&cells);
        let measured = best > 0.0;
        let wide = measured && ranks.len() <= WIDE;
        let key = match (wide, measured) {
            (true, _) => "Gb/s",
            (false, true) => "tenths of the best path",
            (false, false) => "o is well",
        };
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(
            text,
            "rail {rail}: from the rank of the line to that of the column; {key}, X is bad, . was not tried"
        );
        let width = if wide { 8 } else { 1 };
        if wide {
            let titles: String = ranks.iter().map(|rank| format!("{rank:>width$}")).collect();
            let _ = writeln!(text, "{:>6} {titles}", "");
        }
        for from in &ranks {
            let cell = |to: &u32| {
                let tried =
                    |rank: &u32| outcome.tested.contains(&(*rank, rail)) && !measured && from != to;
                match cells.get(&(*from, *to)) {
                    Some(path) if !(path.good || wide && path.gbps.is_some()) => "X".to_owned(),
                    Some(PathView { gbps: Some(gbps), good, .. }) if wide => {
                        format!("{gbps:.1}{}", if *good { "" } else { "X" })
                    }
                    Some(PathView { gbps: Some(gbps), .. }) => tenths(*gbps, best).to_string(),
                    Some(_) => "o".to_owned(),
                    None if tried(from) && tried(to) => "o".to_owned(),
                    None => ".".to_owned(),
                }
            };
            let line: String = ranks.iter().map(|to| format!("{:>width$}", cell(to))).collect();
            let _ = writeln!(text, "{from:>6} {line}");
        }
    }
    text
}

/// Text in XML or HTML, also within quotes. Characters that XML does not have are left out.
pub(crate) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c if c.is_control() && c != '\n' => safe.push(' '),
            c => safe.push(c),
        }
    }
    safe
}

const STYLE: &str = "body{font:14px sans-serif;margin:2em;color:#222;background:#fff}\
table.m{border-collapse:collapse;margin:1em 0}\
table.m td,table.m th{min-width:14px;height:14px;font-size:10px;padding:1px 3px;text-align:center;\
border:1px solid #fff}\
td.x{background:#c1121f;color:#fff}td.n{background:#eee}td.g{background:#2a9d4a;color:#fff}\
td.s{background:#444}.pass{color:#1b7837}.fail{color:#c1121f}\
ul.c{max-width:70em}.rail{display:flex;flex-wrap:wrap;gap:2em;align-items:flex-start}";

/// The colour of a speed: red, yellow, green.
fn colour(tenths: u8) -> String {
    format!("hsl({},65%,58%)", u16::from(tenths) * 13)
}

/// A speed in a cell: what is slow is not shown as nothing.
fn short(gbps: f64) -> String {
    let digits = [(9.95, 0), (0.995, 1)].iter().find(|(least, _)| gbps >= *least);
    format!("{gbps:.*}", digits.map_or(3, |(_, digits)| *digits))
}

/// As one page.
pub(crate) fn html(outcome: &Outcome, changes: Option<&Changes>) -> String {
    let Outcome { command, hosts, rails, findings, passed, .. } = outcome;
    let ranks = ranks(outcome);
    let verdict = if *passed { ("pass", "all is well") } else { ("fail", "FAILED") };
    let title = format!("verbgate fabric {}", escaped(command));
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>\
         <style>{STYLE}</style></head><body>\n<h1>{title}: <span class=\"{}\" id=\"verdict\">{}\
         </span></h1>\n<p>{} ranks, {rails} rails. Lines send, columns receive; point at a cell for \
         the numbers and the cause.</p>\n",
        verdict.0,
        verdict.1,
        hosts.len()
    );
    let list = |title: &str, id: &str, of: &[String]| -> String {
        let lines: String = of.iter().map(|line| format!("<li>{}</li>\n", escaped(line))).collect();
        match of.is_empty() {
            true => String::new(),
            false => format!("<h2>{title}</h2>\n<ul class=\"c\" id=\"{id}\">{lines}</ul>\n"),
        }
    };
    page += &list("What is wrong", "findings", findings);
    if let Some(Changes { worse, better, other }) = changes {
        page += &list("Worse than the baseline", "worse", worse);
        page += &list("Better than the baseline", "better", better);
        page += &list("Other changes", "changes", other);
    }
    for rail in 0..*rails {
        page += &of_rail(outcome, rail, &ranks);
    }
    page += "<h2>Ranks</h2>\n<ul class=\"c\" id=\"ranks\">";
    for (rank, host) in hosts {
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(page, "<li>rank {rank} on {}</li>", escaped(host));
    }
    page + "</ul>\n</body></html>\n"
}

fn of_rail(outcome: &Outcome, rail: usize, ranks: &[u32]) -> String {
    let cells = cells(outcome, rail);
    let best = best(&cells);
    let mut page =
        format!("<h2>Rail {rail}</h2>\n<div class=\"rail\"><table class=\"m\"><tr><th></th>");
    ranks.iter().for_each(|rank| {
        let _ = write!(page, "<th>{rank}</th>");
    });
    page += "</tr>\n";
    let (mut causes, mut listed) = (String::new(), 0);
    for from in ranks {
        let _ = write!(page, "<tr><th>{from}</th>");
        for to in ranks {
            let tried = |rank: &u32| outcome.tested.contains(&(*rank, rail));
            let at = format!("rank {from} to {to}, rail {rail}");
            let _ = match cells.get(&(*from, *to)) {
                _ if from == to => write!(page, "<td class=\"s\"></td>"),
                Some(path) => {
                    let gbps = path.gbps.map(|gbps| match gbps {
                        1.0.. => format!("{gbps:.1} Gb/s"),
                        _ => format!("{gbps:.4} Gb/s"),
                    });
                    let us = path.p50_us.map(|us| format!("{us:.1} us"));
                    let all = gbps.into_iter().chain(us).chain(path.why.iter().cloned());
                    let words = all.collect::<Vec<_>>().join("; ");
                    listed += usize::from(!path.good);
                    if !path.good && listed <= LISTED {
                        let _ = writeln!(causes, "<li>{at}: {}</li>", escaped(&words));
                    }
                    let hint = escaped(&format!("{at}: {words}"));
                    match (path.good, path.gbps) {
                        (false, _) => write!(page, "<td class=\"x\" title=\"{hint}\">X</td>"),
                        (true, Some(gbps)) => write!(
                            page,
                            "<td style=\"background:{}\" title=\"{hint}\">{}</td>",
                            colour(tenths(gbps, best)),
                            short(gbps)
                        ),
                        (true, None) => write!(page, "<td class=\"g\" title=\"{hint}\"></td>"),
                    }
                }
                None if best == 0.0 && tried(from) && tried(to) => {
                    write!(page, "<td class=\"g\" title=\"{at}: well\"></td>")
                }
                None => write!(page, "<td class=\"n\" title=\"{at}: not tried\"></td>"),
            };
        }
        page += "</tr>\n";
    }
    page += "</table>";
    if let more @ 1.. = listed.saturating_sub(LISTED) {
        let _ = writeln!(causes, "<li>and {more} more, in the cells</li>");
    }
    if !causes.is_empty() {
        let _ = write!(page, "<ul class=\"c\" id=\"causes-{rail}\">{causes}</ul>");
    }
    page + "</div>\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::tests::example;

    #[test]
    fn a_terminal_shows_each_path_and_what_is_bad() {
        let text = text(&example());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 5, "{text}");
        assert!(lines[2].ends_with("       .   390.0       X"), "{text}");
        assert!(lines[3].contains("    13.0"), "{text}");
        let mut many = example();
        many.hosts = (0..20).map(|rank| (rank, String::new())).collect();
        let text = super::text(&many);
        assert!(text.contains("\n     0 .9X...") && text.contains("\n     1 0..."), "{text}");
        let mut tried = many.clone();
        tried.paths.retain(|path| !path.good);
        let text = super::text(&tried);
        assert!(text.contains("\n     0 .oX...") && text.contains("\n     1 o.o..."), "{text}");
    }

    #[test]
    fn the_page_stands_alone_and_nothing_in_it_is_markup_that_was_not_meant() {
        let mut outcome = example();
        outcome.hosts.insert(1, "<script>alert(1)</script>".to_owned());
        let page =
            html(&outcome, Some(&Changes { worse: vec!["a < b".into()], ..Changes::default() }));
        for word in ["http", "src=", "<script", "@import", "url("] {
            assert!(!page.contains(word), "{word}");
        }
        assert!(page.contains("&lt;script&gt;") && page.contains("<li>a &lt; b</li>"));
        assert_eq!(page.matches("class=\"x\"").count(), 1);
        assert!(page.contains("title=\"rank 1 to 0, rail 0: 13.0 Gb/s; 3.0 us\""), "{page}");
        assert!(page.contains("rank 0 to 2, rail 0: RETRY_EXC_ERR &lt;12&gt;"));
    }

    #[test]
    fn slow_paths_are_not_shown_as_nothing() {
        let all = [392.4, 13.0, 1.26, 0.0423].map(short);
        assert_eq!(all, ["392", "13", "1.3", "0.042"]);
    }

    /// A thousand ranks do not fit a page; those with bad paths are shown.
    #[test]
    fn of_very_many_ranks_those_with_bad_paths_are_shown() {
        let mut outcome = example();
        outcome.hosts = (0..1000).map(|rank| (rank, format!("node{rank}"))).collect();
        let page = html(&outcome, None);
        assert_eq!(page.matches("<tr><th>").count(), 1 + 2, "{}", page.len());
        assert!(page.len() < 100_000);
    }
}
