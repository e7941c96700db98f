//! Medians and percentiles.

/// The middle value, or the mean of the two in the middle; 0 without values.
pub(crate) fn median(values: &[f64]) -> f64 {
    let sorted = sorted(values);
    let half = sorted.len() / 2;
    match sorted.len() {
        0 => 0.0,
        odd if odd % 2 == 1 => sorted[half],
        _ => f64::midpoint(sorted[half - 1], sorted[half]),
    }
}

/// The value that `percent` of all values do not exceed; 0 without values.
pub(crate) fn percentile(values: &[f64], percent: f64) -> f64 {
    let sorted = sorted(values);
    let last = sorted.len().saturating_sub(1);
    let place = (percent / 100.0 * last as f64).round() as usize;
    sorted.get(place).copied().unwrap_or_default()
}

pub(crate) fn mean(values: &[f64]) -> f64 {
    if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / values.len() as f64 }
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(&[]), 0.0);
    }

    #[test]
    fn a_percentile_is_one_of_the_values() {
        let values: Vec<f64> = (0..=100).map(f64::from).collect();
        assert_eq!(percentile(&values, 99.0), 99.0);
        assert_eq!(percentile(&values, 100.0), 100.0);
        assert_eq!(percentile(&[], 50.0), 0.0);
    }
}
