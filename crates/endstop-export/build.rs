//! Tests that need a server of another kind are ignored unless `ENDSTOP_SERVERS=1` is set.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(endstop_servers)");
    println!("cargo::rerun-if-env-changed=ENDSTOP_SERVERS");
    if std::env::var("ENDSTOP_SERVERS").is_ok_and(|value| value == "1") {
        println!("cargo::rustc-cfg=endstop_servers");
    }
}
