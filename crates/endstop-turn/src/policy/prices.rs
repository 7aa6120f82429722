//! Prices: a built-in table, and the lookup of a model's price.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use super::{Money, Policy, Price};

/// The built-in table, with its date and its sources.
const TABLE: &str = include_str!("prices.txt");

static BUILT_IN: LazyLock<BTreeMap<&str, Price>> =
    LazyLock::new(|| TABLE.lines().filter_map(row).collect());

/// Reads a row: `provider/model input output`. Comments and empty lines are not rows.
fn row(line: &'static str) -> Option<(&'static str, Price)> {
    let mut parts = line.split_whitespace();
    let name = parts.next().filter(|name| !name.starts_with('#'))?;
    // `as` saturates.
    let mut dollars = || {
        let number = parts.next()?.parse::<f64>().ok()?;
        Some(Money::from_micros((number * 1e6).round() as u64))
    };
    Some((name, Price { input: dollars()?, output: dollars()? }))
}

impl Policy {
    /// Date of the built-in prices.
    pub const PRICES_DATE: &'static str = "2026-11-18";

    /// Returns the price of this model at this provider, or `None` if it is not known. The policy's own
    /// prices take precedence over the built-in ones, and `provider/model` over `model`. A name
    /// without a date matches all dates.
    ///
    /// ```
    /// # #[cfg(feature = "toml")] {
    /// use endstop_turn::policy::Policy;
    ///
    /// let text = "[prices]\n\"gpt-4.1\" = { input = 2.0, output = 8.0 }";
    /// let policy = Policy::from_toml("p.toml", text).unwrap();
    /// assert!(policy.price_of("openai", "gpt-4.1-2025-04-14").is_some());
    /// assert!(policy.price_of("openai", "gpt-4.1-frobnicated").is_none());
    /// # }
    /// ```
    #[must_use]
    pub fn price_of(&self, provider: &str, model: &str) -> Option<Price> {
        let full = format!("{provider}/{model}");
        let of = |name: &str, named: &dyn Fn(&str) -> Option<Price>| {
            named(name).or_else(|| undated(name).and_then(named))
        };
        let own = |name: &str| self.prices.get(name).copied();
        let built_in = |name: &str| BUILT_IN.get(name).copied();
        of(&full, &own).or_else(|| of(model, &own)).or_else(|| of(&full, &built_in))
    }
}

/// Returns the name without its date, such as `-2025-04-14`, `-20250414`, `@20250414` or `-0613`.
fn undated(name: &str) -> Option<&str> {
    let date_at = name.match_indices(['-', '@']).map(|(at, _)| at).find(|at| {
        let date = name.get(at + 1..).unwrap_or_default();
        let year = date.split('-').next().unwrap_or_default();
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        year.len() >= 4 && date.split('-').all(|part| part.len() >= 2 && digits(part))
    });
    name.get(..date_at?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Money;

    #[test]
    fn a_date_is_no_part_of_a_models_name() {
        for (name, want) in [
            ("gpt-4.1-2025-04-14", Some("gpt-4.1")),
            ("claude-opus-4-5-20250929", Some("claude-opus-4-5")),
            ("claude-opus-4-6@20260201", Some("claude-opus-4-6")),
            ("gpt-4-0613", Some("gpt-4")),
            ("claude-opus-4-5", None),
            ("gpt-4-turbo", None),
            ("gpt-4-turbo-2024-04-09", Some("gpt-4-turbo")),
            ("m-2024x", None),
            ("", None),
        ] {
            assert_eq!(undated(name), want, "{name}");
        }
    }

    #[test]
    fn every_row_of_the_built_in_table_is_read() {
        let is_row = |line: &&str| !line.trim().is_empty() && !line.starts_with('#');
        assert_eq!(BUILT_IN.len(), TABLE.lines().filter(is_row).count());
        assert!(TABLE.contains(&format!("# Date: {}\n", Policy::PRICES_DATE)));
        let is_known = |name: &&str| {
            let provider = name.split_once('/').map(|(provider, _)| provider);
            provider.is_some_and(|id| endstop::provider::ALL.iter().any(|known| known.id == id))
        };
        assert!(BUILT_IN.keys().all(is_known), "{:?}", BUILT_IN.keys());
        let dearest = Money::from_micros(1_000_000_000);
        let is_sane = |price: &Price| {
            Money::default() < price.input && price.input < price.output && price.output < dearest
        };
        assert!(BUILT_IN.values().all(is_sane), "{:?}", *BUILT_IN);
    }

    #[test]
    fn a_file_replaces_a_built_in_price() {
        let price = |input, output| {
            Some(Price { input: Money::from_micros(input), output: Money::from_micros(output) })
        };
        let usual = Policy::default();
        assert_eq!(usual.price_of("openai", "gpt-4.1-2025-04-14"), price(2_000_000, 8_000_000));
        assert_eq!(usual.price_of("azure", "gpt-4.1"), None, "another provider has its own prices");
        assert_eq!(usual.price_of("openai", "gpt-4.1-frob"), None);
        let prices = [("gpt-4.1".to_owned(), Price::default())].into();
        let own = Policy { prices, ..Policy::default() };
        assert_eq!(own.price_of("openai", "gpt-4.1-2025-04-14"), price(0, 0));
        assert_eq!(own.price_of("openai", "gpt-5"), usual.price_of("openai", "gpt-5"));
    }

    #[test]
    fn the_provider_s_own_price_goes_first() {
        let price = |dollars: u64| Price {
            input: Money::from_micros(dollars * 1_000_000),
            output: Money::default(),
        };
        let prices = [("m", price(1)), ("acme/m", price(2)), ("acme/n", price(3))];
        let prices = prices.map(|(name, price)| (name.to_owned(), price)).into();
        let policy = Policy { prices, ..Policy::default() };
        assert_eq!(policy.price_of("acme", "m"), Some(price(2)));
        assert_eq!(policy.price_of("acme", "m-2026-01-01"), Some(price(2)));
        assert_eq!(policy.price_of("other", "m"), Some(price(1)));
        assert_eq!(policy.price_of("acme", "n"), Some(price(3)));
        assert_eq!(policy.price_of("other", "n"), None);
        assert_eq!(policy.price_of("", ""), None);
    }
}
