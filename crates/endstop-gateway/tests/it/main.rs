//! The gateway between a simulated provider and a client that counts every byte.

mod identity;
