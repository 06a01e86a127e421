//! The sweeps as pictures: bars for a terminal, curves as SVG.

use std::error::Error;
use std::fmt::Write as _;

use plotters::prelude::*;

use crate::bench::options::Sweep;
use crate::bench::sums::Sums;

/// The longest bar, in characters.
const BAR: f64 = 40.0;
/// More would overlap on an axis.
const LABELS: usize = 5;
const PICTURE: (u32, u32) = (1200, 520);

/// Of one size or target, over all paths and repeats.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Spread {
    at: f64,
    least: f64,
    median: f64,
    most: f64,
    failed: usize,
}

/// Bandwidth by size, or by target.
fn spreads(sums: &Sums, sweep: Sweep) -> Vec<Spread> {
    let all = sums.spreads(sweep);
    all.map(|spread| {
        let (least, median, most) = spread.gbps().unwrap_or((f64::NAN, f64::NAN, f64::NAN));
        Spread { at: spread.at, least, median, most, failed: spread.failed }
    })
    .collect()
}

/// For a terminal: the median of all paths, and from where to where they are.
pub(crate) fn bars(sums: &Sums) -> String {
    let mut text = String::new();
    for (sweep, title) in [(Sweep::Sizes, "by size"), (Sweep::Pace, "by target")] {
        let spreads = spreads(sums, sweep);
        let most = spreads.iter().map(|s| s.most).fold(0.0, f64::max);
        if spreads.is_empty() {
            continue;
        }
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(text, "Gb/s {title}, the median of all paths (least to most):");
        for Spread { at, least, median, most: top, failed } in spreads {
            let at = if at.is_finite() { at.to_string() } else { "unpaced".to_owned() };
            if median.is_nan() {
                let _ = writeln!(text, "{at:>10}  all {failed} failed");
                continue;
            }
            let bar = (0..).take_while(|n| f64::from(*n) < median / most * BAR).map(|_| '#');
            let bar: String = bar.collect();
            let failed = if failed > 0 { format!(", {failed} failed") } else { String::new() };
            let _ =
                writeln!(text, "{at:>10} |{bar:<40} {median:.4} ({least:.4} to {top:.4}{failed})");
        }
    }
    text
}

/// As SVG: bandwidth by size, and what was reached of each target.
///
/// # Errors
/// When it cannot be drawn.
pub(crate) fn svg(sums: &Sums) -> Result<String, Box<dyn Error>> {
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, PICTURE).into_drawing_area();
        root.fill(&WHITE)?;
        let (left, right) = root.split_horizontally(PICTURE.0 / 2);
        let sizes = spreads(sums, Sweep::Sizes);
        curves(&left, "Gb/s by size of messages in bytes", &sizes, false)?;
        let paced = spreads(sums, Sweep::Pace).into_iter().filter(|s| s.at.is_finite());
        curves(&right, "Gb/s by target in Gb/s", &paced.collect::<Vec<_>>(), true)?;
        root.present()?;
    }
    Ok(text)
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

/// Without the digits that floating point makes up.
fn label(value: f64) -> String {
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Least, median and most, on axes of both logarithms; with the diagonal that targets should be on.
fn curves(
    area: &Area<'_>,
    title: &str,
    spreads: &[Spread],
    diagonal: bool,
) -> Result<(), Box<dyn Error>> {
    let known: Vec<&Spread> = spreads.iter().filter(|s| s.least > 0.0).collect();
    let font = ("sans-serif", 18);
    let (Some(first), Some(last)) = (known.first(), known.last()) else {
        area.titled(&format!("{title}: nothing was measured"), font)?;
        return Ok(());
    };
    let low = known.iter().map(|s| s.least).fold(f64::INFINITY, f64::min);
    let high = known.iter().map(|s| s.most).fold(0.0, f64::max);
    // A point alone has axes, too.
    let x = (first.at / 1.5..last.at * 1.5).log_scale();
    let mut chart = ChartBuilder::on(area)
        .caption(title, font)
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(60)
        .build_cartesian_2d(x, (low / 1.5..high * 1.5).log_scale())?;
    chart
        .configure_mesh()
        .x_labels(LABELS)
        .x_label_formatter(&|value| label(*value))
        .y_label_formatter(&|value| label(*value))
        .draw()?;
    type Of = fn(&Spread) -> f64;
    let lines: [(&str, RGBColor, Of); 3] = [
        ("least", RED, |spread| spread.least),
        ("median", BLACK, |spread| spread.median),
        ("most", BLUE, |spread| spread.most),
    ];
    for (name, colour, of) in lines {
        let points = known.iter().map(|spread| (spread.at, of(spread)));
        let drawn = chart.draw_series(LineSeries::new(points, colour).point_size(3))?;
        drawn.label(name).legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour));
    }
    if diagonal {
        let ends = [(first.at, first.at), (last.at, last.at)];
        let drawn = chart.draw_series(LineSeries::new(ends, BLACK.mix(0.3)))?;
        let colour = BLACK.mix(0.3);
        drawn.label("target").legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour));
    }
    chart.configure_series_labels().border_style(BLACK).background_style(WHITE).draw()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::cell::Cell;

    fn cell(sweep: Sweep, size: usize, target_gbps: Option<f64>, gbps: Option<f64>) -> Cell {
        Cell { sweep: Some(sweep), size, target_gbps, gbps, ..Cell::default() }
    }

    fn cells() -> Sums {
        let mut cells = Vec::new();
        for (size, gbps) in [(64, 0.5), (4096, 20.0), (4096, 30.0), (4096, 10.0)] {
            cells.push(cell(Sweep::Sizes, size, None, Some(gbps)));
        }
        cells.push(cell(Sweep::Sizes, 65536, None, None));
        for (target, gbps) in [(Some(1.0), 1.0), (Some(25.0), 0.695), (None, 40.0)] {
            cells.push(cell(Sweep::Pace, 65536, target, Some(gbps)));
        }
        let mut sums = Sums::default();
        cells.into_iter().for_each(|cell| sums.add(cell));
        sums
    }

    #[test]
    fn bars_show_the_median_and_what_failed() {
        let text = bars(&cells());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 8, "{text}");
        assert!(
            lines[2].contains("4096 |###") && lines[2].ends_with("20.0000 (10.0000 to 30.0000)")
        );
        assert!(lines[3].ends_with("65536  all 1 failed"), "{text}");
        assert!(lines[7].contains(&"#".repeat(40)) && lines[7].contains("unpaced"), "{text}");
        assert_eq!(bars(&Sums::default()), "");
    }

    #[test]
    fn labels_are_short() {
        let labels = [0.009_000_000_000_000_001, 10_000.0, 0.25, 30.0].map(label);
        assert_eq!(labels, ["0.009", "10000", "0.25", "30"]);
    }

    #[test]
    fn a_picture_has_both_sweeps_and_none_is_said() {
        let drawn = svg(&cells()).unwrap();
        assert!(drawn.starts_with("<svg") && drawn.trim_end().ends_with("</svg>"));
        assert!(drawn.contains("Gb/s by size") && drawn.contains("Gb/s by target"));
        assert!(drawn.matches("<polyline").count() >= 7, "{drawn}");
        assert!(svg(&Sums::default()).unwrap().contains("nothing was measured"));
    }
}
