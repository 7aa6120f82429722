//! Medians, percentiles, and a random order that is the same in every run.

/// Returns the value that a share of the values does not exceed; zero if there are no values.
pub(crate) fn percentile(values: &mut [u64], share: f64) -> u64 {
    values.sort_unstable();
    let rank = (share * values.len() as f64).ceil() as usize;
    values.get(rank.max(1) - 1).or(values.last()).copied().unwrap_or(0)
}

/// Returns the median; NaN if there are no values.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (half, even) = (sorted.len() / 2, sorted.len().is_multiple_of(2));
    let upper = sorted.get(half).copied();
    let lower =
        if even { half.checked_sub(1).and_then(|at| sorted.get(at).copied()) } else { upper };
    match (lower, upper) {
        (Some(lower), Some(upper)) => f64::midpoint(lower, upper),
        _ => f64::NAN,
    }
}

/// Returns the least value; NaN if there are no values.
pub(crate) fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::NAN, f64::min)
}

/// Returns the greatest value; NaN if there are no values.
pub(crate) fn greatest(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::NAN, f64::max)
}

/// Divides each value by the reference's value in the same round.
pub(crate) fn ratios(values: &[f64], reference: &[f64]) -> Vec<f64> {
    values.iter().zip(reference).map(|(value, reference)| value / reference).collect()
}

/// Returns the numbers below `count` in an order that depends only on the seed.
pub(crate) fn order(count: usize, seed: u64) -> Vec<usize> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut left: Vec<usize> = (0..count).collect();
    let mut order = Vec::with_capacity(count);
    while !left.is_empty() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        order.push(left.swap_remove((state >> 11) as usize % left.len()));
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_occurred() {
        let mut values: Vec<u64> = (1..=100).rev().collect();
        assert_eq!(percentile(&mut values, 0.5), 50);
        assert_eq!(percentile(&mut values, 0.99), 99);
        assert_eq!(percentile(&mut values, 1.0), 100);
        assert_eq!(percentile(&mut [7], 0.0), 7);
        assert_eq!(percentile(&mut [], 0.5), 0);
    }

    #[test]
    fn the_median_does_not_mind_the_order() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn the_extremes_of_nothing_are_no_numbers() {
        assert_eq!((least(&[2.0, 1.0]), greatest(&[1.0, 2.0])), (1.0, 2.0));
        assert!(least(&[]).is_nan() && greatest(&[]).is_nan());
    }

    #[test]
    fn a_ratio_is_taken_within_its_round() {
        assert_eq!(ratios(&[2.0, 30.0], &[1.0, 10.0]), [2.0, 3.0]);
    }

    #[test]
    fn an_order_has_every_number_once_and_depends_on_the_seed() {
        let mut sorted = order(9, 3);
        assert_eq!(sorted, order(9, 3));
        assert_ne!(sorted, order(9, 4));
        sorted.sort_unstable();
        assert_eq!(sorted, (0..9).collect::<Vec<_>>());
    }
}
