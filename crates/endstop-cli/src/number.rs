//! Parses the numbers of options.

use std::net::SocketAddr;

use endstop_gateway::config::parse_address;

/// Parses a whole number. The errors name what is allowed; clap adds the option and its value.
pub(crate) fn whole<T: TryFrom<u64>>(text: &str) -> Result<T, &'static str> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits {
        return Err("expected a whole number, 0 or greater");
    }
    let number = text.parse::<u64>().ok().and_then(|number| T::try_from(number).ok());
    number.ok_or("the number is too large")
}

/// Parses a whole number of at least 1.
pub(crate) fn positive<T: TryFrom<u64>>(text: &str) -> Result<T, &'static str> {
    const WANTED: &str = "expected a whole number, 1 or greater";
    match whole::<u64>(text) {
        Ok(0) => Err(WANTED),
        Ok(_) => whole(text),
        Err(_) if text.starts_with('-') || text.parse::<u128>().is_err() => Err(WANTED),
        Err(why) => Err(why),
    }
}

/// Parses an HTTP status.
pub(crate) fn status(text: &str) -> Result<u16, &'static str> {
    let status = text.parse().ok().filter(|status| (100..600).contains(status));
    status.ok_or("expected an HTTP status from 100 to 599")
}

/// Parses an address to listen on.
pub(crate) fn address(text: &str) -> Result<SocketAddr, &'static str> {
    parse_address(text).ok_or("expected an IP address and a port, such as 127.0.0.1:4100")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_numbers_are_read() {
        assert_eq!(whole::<u32>("12"), Ok(12));
        for wrong in ["", "x", "-1", "+1", "1.5", "1e3"] {
            assert_eq!(
                whole::<u32>(wrong),
                Err("expected a whole number, 0 or greater"),
                "{wrong}"
            );
        }
        assert_eq!((positive::<u32>("1"), positive::<u32>("0").is_err()), (Ok(1), true));
        assert_eq!(whole::<u32>("5000000000"), Err("the number is too large"));
        assert_eq!(
            (status("599"), status("99").is_err(), status("x").is_err()),
            (Ok(599), true, true)
        );
    }
}
