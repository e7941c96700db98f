//! Tips for a command line that is not understood.

use clap::Error;
use clap::error::{ContextKind, ContextValue, ErrorKind};

const RUN: &str = "`quorate run NAME -- COMMAND`: the command and its options stand behind `--`";

/// Adds a tip where clap has none. It takes one away that is wrong here: no option of ours stands
/// behind `--`.
pub(crate) fn with_tip(mut error: Error) -> Error {
    let text = |kind| error.get(kind).map(ToString::to_string).unwrap_or_default();
    let is_run = text(ContextKind::Usage).contains("quorate run");
    let argument = text(ContextKind::InvalidArg);
    let tip = match (error.kind(), &*argument) {
        // As other commands have it. Our timeouts of that kind are others.
        (ErrorKind::UnknownArgument, "--timeout" | "-w" | "-n") => {
            error.remove(ContextKind::SuggestedArg);
            "see --wait and --no-wait of `run` and `lock`"
        }
        (ErrorKind::InvalidSubcommand, _) => RUN,
        (ErrorKind::UnknownArgument | ErrorKind::MissingRequiredArgument, _) if is_run => RUN,
        _ => return error,
    };
    error.remove(ContextKind::Suggested);
    let kinds = [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand];
    if kinds.iter().all(|kind| error.get(*kind).is_none()) {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}
