//! Prices: the lookup of a model's price in a policy.

use super::{Policy, Price};

impl Policy {
    /// Returns the price of this model at this provider. `provider/model` takes precedence over
    /// `model`. A name without a date matches all dates.
    ///
    /// ```
    /// # #[cfg(feature = "toml")] {
    /// use endstop_turn::policy::Policy;
    ///
    /// let text = "[prices]\n\"gpt-4.1\" = { input = 2.0, output = 8.0 }";
    /// let policy = Policy::from_toml("p.toml", text).unwrap();
    /// assert!(policy.price_of("openai", "gpt-4.1-2025-04-14").is_some());
    /// assert!(policy.price_of("openai", "gpt-4.1-mini").is_none());
    /// # }
    /// ```
    #[must_use]
    pub fn price_of(&self, provider: &str, model: &str) -> Option<Price> {
        if self.prices.is_empty() {
            return None;
        }
        let full = format!("{provider}/{model}");
        let names = [full.as_str(), model];
        let named = |name: &str| self.prices.get(name).copied();
        let dated = |name: &str| undated(name).and_then(named);
        names.into_iter().find_map(|name| named(name).or_else(|| dated(name)))
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
