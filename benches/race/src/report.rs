//! The report: as Markdown, as JSON and as a chart.

use std::fs;
use std::path::Path;

use serde_json::json;

use crate::Outcome;
use crate::book::Book;
use crate::plan::Plan;

mod markdown;
mod ratios;
mod svg;

/// Writes all three and prints the Markdown.
pub(crate) fn write(plan: &Plan, book: &Book) -> Outcome {
    let text = markdown::render(plan, book);
    let picture = svg::render(book);
    println!("{text}");
    fs::create_dir_all(&plan.out)?;
    put(&plan.out.join("race.md"), &text)?;
    put(&plan.out.join("race.json"), &format!("{:#}\n", as_json(book)))?;
    if let Some(picture) = &picture {
        put(&plan.out.join("race.svg"), picture)?;
    }
    if plan.publish {
        put(Path::new("benches/RACE.md"), &text)?;
        if let Some(picture) = &picture {
            put(Path::new("benches/race.svg"), picture)?;
        }
    }
    Ok(())
}

fn put(path: &Path, text: &str) -> Outcome {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    println!("wrote {}", path.display());
    Ok(())
}

fn as_json(book: &Book) -> serde_json::Value {
    let figures = book.entries().iter().map(|entry| {
        json!({
            "measure": entry.measure,
            "setting": entry.setting,
            "contestant": entry.contestant,
            "metric": entry.metric,
            "median": entry.median(),
            "samples": entry.samples,
        })
    });
    let leftovers = book.leftovers().iter().map(|left| {
        json!({
            "contestant": left.contestant,
            "place": left.place,
            "keys": left.keys,
            "example": left.example,
        })
    });
    let ratios = ratios::all(book).into_iter().chain(ratios::of_hung(book)).map(|ratio| {
        json!({
            "measure": ratio.measure,
            "setting": ratio.setting,
            "metric": ratio.metric,
            "of": ratio.of,
            "to": ratio.to,
            "ratio": ratio.value,
        })
    });
    json!({
        "figures": figures.collect::<Vec<_>>(),
        "ratios": ratios.collect::<Vec<_>>(),
        "keys left": leftovers.collect::<Vec<_>>(),
    })
}
