//! Reading which server a node is.

use quorate_core::BackendError;

use crate::command::Command;
use crate::reply::{Reply, read};
use crate::transport::{Admission, Transport};

/// Reads the `run_id` of `INFO server`; `None` if there is none (Q6).
pub(crate) async fn server_id<T: Transport>(transport: &T) -> Result<Option<String>, BackendError> {
    let question = Command::new("INFO", 6).arg("server");
    match read(transport.call(question, Admission::Other).await)? {
        Reply::Text(info) => {
            let info = String::from_utf8_lossy(&info);
            let id = info.lines().find_map(|line| line.strip_prefix("run_id:")).map(str::trim);
            Ok(id.filter(|id| !id.is_empty()).map(str::to_owned))
        }
        reply => Err(reply.unexpected("INFO")),
    }
}
