//! Wrong versions of the restart guard, which the world whose nodes forget must find.

use super::bugs::Bug;

const CALLING: &str = "crates/quorate-core/src/driver/calling.rs";
const GUARDED_STORE: &str = "crates/quorate-memory/src/store/guarded.rs";

/// All of them.
pub(super) const GUARDED: &[Bug] = &[
    Bug {
        name: "guard-off",
        edits: &[(
            CALLING,
            "if let Some(guard) = cluster.config.restart_guard {",
            "let guard = cluster.config.restart_guard;
             if let Some(guard) = guard.filter(|_| !crate::planted::PLANTED) {",
        )],
    },
    Bug {
        name: "guard-by-key-only",
        edits: &[(
            GUARDED_STORE,
            "Some((epoch, _)) if epoch == id => return Ok(None),",
            "Some((epoch, _)) if epoch == id || quorate_core::planted::PLANTED => return Ok(None),",
        )],
    },
    Bug {
        name: "guard-by-run-only",
        edits: &[(
            GUARDED_STORE,
            "None => (guard.quarantine_of_unknown(run.uptime()), None),",
            "None if quorate_core::planted::PLANTED => {
                 (max_ttl.saturating_sub(run.uptime()), None)
             }
             None => (guard.quarantine_of_unknown(run.uptime()), None),",
        )],
    },
    Bug {
        name: "quarantine-of-half-a-ttl",
        edits: &[(
            GUARDED_STORE,
            "if wait > left {",
            "let wait = if quorate_core::planted::PLANTED { wait / 4 } else { wait };
             if wait > left {",
        )],
    },
    Bug {
        name: "quarantine-not-looked-at",
        edits: &[(
            GUARDED_STORE,
            "Some(left) if !self.is_ours(claim, now)? =>",
            "Some(left) if (before.is_some() || !quorate_core::planted::PLANTED)
                 && !self.is_ours(claim, now)? =>",
        )],
    },
];
