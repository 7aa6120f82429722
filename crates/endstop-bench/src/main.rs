//! The gateway beside other proxies, in one run, as ratios.

fn main() {}
