//! Simulated providers: every wire, every ending, every fault, on demand.
