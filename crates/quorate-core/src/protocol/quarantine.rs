//! The restart guard on the wire: one script in place of the canonical acquire, and two keys.
//!
//! What it is for, and what to know as an operator, is told in [`restarts`](crate::restarts).
//!
//! - [`EPOCH`] holds `run_id:max_ttl`, the time in milliseconds, without an expiry. **Deleting it
//!   begins a quarantine.**
//! - [`KEY`] is there while the node is quarantined. **Deleting it ends the quarantine.** Without an
//!   expiry it lasts until somebody deletes it, which is a way to keep a node out.

use std::time::Duration;

use super::{Reply, Script, Wire, fence, nonsense};
use crate::algorithm::fence::{FenceHint, FencingToken};
use crate::backend::{BackendError, BackendErrorKind, Claim};
use crate::resource::Key;
use crate::restarts::{Guarded, GuardedVote, RestartGuard};

/// Where a node keeps its epoch.
pub const EPOCH: &str = "quorate:guard:epoch";

/// What a node has while it is quarantined.
pub const KEY: &str = "quorate:guard:quarantine";

/// Takes the keys, with a number if there is a hint, unless the node is quarantined. `KEYS` the
/// keys, then the counter of each if there is a hint, then [`EPOCH`] and [`KEY`]; `ARGV` token, ttl
/// in ms, hint or nothing, `max_ttl` in ms, `strict` or `soft`.
///
/// Answers `word number run before`: the word is `granted` (and the number the one for a fencing
/// token, 0 without a hint), `refused` or `quarantined` (and for how many ms still); before is the
/// run whose epoch was found, `-` if none or this one.
///
/// The memory is looked at only when an epoch is set: it costs more than all the rest. A node that
/// evicts never gets one, so each acquire looks again until it is mended.
pub const ACQUIRE: Script = Script {
    source: "\
local epoch, quarantine = KEYS[#KEYS - 1], KEYS[#KEYS]
local function info(section)
  local text = redis.pcall('INFO', section)
  if type(text) == 'string' then return text end
  return nil, redis.error_reply('QUORATEINFO the restart guard needs INFO: ' .. (type(text) == 'table' and text.err or 'no text'))
end
local server, err = info('server')
if not server then return err end
local run = string.match(server, 'run_id:(%w+)')
if not run then return redis.error_reply('QUORATEIDENTITY the node tells no run_id') end
local before, found, known = '-', redis.call('GET', epoch), run .. ':' .. ARGV[4]
if found ~= known then
  local wait = tonumber(ARGV[4])
  if found then
    local other, max = string.match(found, '^(%w+):(%d+)$')
    if not other then return redis.error_reply('QUORATEMAXTTL no epoch at ' .. epoch) end
    if max ~= ARGV[4] then return redis.error_reply('QUORATEMAXTTL its max_ttl is ' .. max .. ' ms, not ' .. ARGV[4] .. ' ms') end
    before = other
  elseif ARGV[5] == 'soft' then
    local uptime = tonumber(string.match(server, 'uptime_in_seconds:(%d+)') or 0)
    wait = wait + 1000 - 1000 * uptime
  end
  local memory, err = info('memory')
  if not memory then return err end
  local most, policy = string.match(memory, 'maxmemory:(%d+)'), string.match(memory, 'maxmemory_policy:([%w-]+)')
  if not most or not policy then return redis.error_reply('QUORATEEVICTS the node does not tell its maxmemory-policy') end
  if most ~= '0' and policy ~= 'noeviction' then
    return redis.error_reply('QUORATEEVICTS the node may evict keys: its maxmemory is ' .. most .. ' and its maxmemory-policy ' .. policy)
  end
  local left = redis.call('PTTL', quarantine)
  if wait > 0 and left ~= -1 and left < wait then redis.call('SET', quarantine, run, 'PX', string.format('%.0f', wait)) end
  redis.call('SET', epoch, known)
end
local function answer(word, number) return word .. ' ' .. number .. ' ' .. run .. ' ' .. before end
local fenced = ARGV[3] ~= ''
local n, ours, taken, top = #KEYS - 2, 0, false, 0
if fenced then n = n / 2 end
for i = 1, n do
  local held = redis.call('GET', KEYS[i])
  if held == ARGV[1] then ours = ours + 1 elseif held then taken = true break end
end
if ours < n then
  local left = redis.call('PTTL', quarantine)
  if left == -1 then left = tonumber(ARGV[4]) end
  if left >= 0 then return answer('quarantined', string.format('%.0f', left)) end
  if taken then return answer('refused', '0') end
end
if fenced then
  for i = n + 1, 2 * n do
    local raw = redis.call('GET', KEYS[i])
    if raw then
      local f = #raw <= 16 and string.find(raw, '^%d+$') and tonumber(raw)
      if not f or f > 9007199254740991 then return redis.error_reply('QUORATEFENCE not a number at ' .. KEYS[i]) end
      if f > top then top = f end
    end
  end
  if ours < n or top == 0 then
    top = math.max(top + 1, tonumber(ARGV[3]))
    if top > 9007199254740991 then return redis.error_reply('QUORATEFENCE no number is left at ' .. KEYS[n + 1]) end
  end
end
if ours < n then
  for i = 1, n do redis.call('SET', KEYS[i], ARGV[1], 'NX', 'PX', ARGV[2]) end
end
local number = string.format('%.0f', top)
if fenced then
  for i = n + 1, 2 * n do redis.call('SET', KEYS[i], number) end
end
return answer('granted', number)
",
    sha1: "cbb025b999d7fb83422dd16a2ee044aa63c813cb",
};

/// [`Quarantine::acquire`](crate::Quarantine::acquire) over `wire`.
///
/// # Errors
///
/// The vote is unknown: the command failed, its answer is not one of the protocol, or the node
/// cannot be guarded.
///
/// # Cancel safety
///
/// As [`Quarantine::acquire`](crate::Quarantine::acquire): keys may be taken, numbers raised, and a
/// quarantine begun.
pub async fn acquire(
    wire: &impl Wire,
    claim: &Claim,
    hint: Option<FenceHint>,
    guard: RestartGuard,
) -> Result<Guarded, BackendError> {
    let keys = claim.keys().iter().cloned();
    let counters = claim.keys().iter().filter(|_| hint.is_some()).map(fence::counter);
    let ours = [EPOCH, KEY].map(|key| Key::of(key.as_bytes().to_vec()));
    let keys: Vec<Key> = keys.chain(counters).chain(ours).collect();
    let ttl = claim.ttl().as_millis().to_string();
    let hint = hint.map(|hint| hint.get().to_string()).unwrap_or_default();
    let max_ttl = guard.max_ttl().as_millis().to_string();
    let rule = if guard.is_strict() { "strict" } else { "soft" };
    let arguments = [
        claim.token().as_bytes(),
        ttl.as_bytes(),
        hint.as_bytes(),
        max_ttl.as_bytes(),
        rule.as_bytes(),
    ];
    let reply = ACQUIRE.eval(wire, &keys, &arguments).await?;
    let answer = match &reply {
        Reply::Bytes(text) => std::str::from_utf8(text).ok().and_then(parse),
        _ => None,
    };
    answer.ok_or_else(|| nonsense("a script", &reply))
}

fn parse(text: &str) -> Option<Guarded> {
    let mut words = text.split(' ');
    let (word, number, run, before) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let number: u64 = number.parse().ok()?;
    let vote = match word {
        "granted" if number == 0 => GuardedVote::Granted(None),
        "granted" => GuardedVote::Granted(Some(FencingToken::new(number)?)),
        "refused" => GuardedVote::Refused,
        "quarantined" => GuardedVote::Quarantined { left: Duration::from_millis(number) },
        _ => return None,
    };
    let guarded = Guarded::new(vote, run);
    Some(if before == "-" { guarded } else { guarded.after(before) })
}

/// The kinds of the error answers of [`ACQUIRE`] that no other command gives.
pub(crate) fn kind_of(reply: &str) -> Option<BackendErrorKind> {
    match reply.split_ascii_whitespace().next()? {
        "QUORATEEVICTS" => Some(BackendErrorKind::Evicting),
        "QUORATEIDENTITY" => Some(BackendErrorKind::Identity),
        "QUORATEMAXTTL" => Some(BackendErrorKind::MaxTtl),
        "QUORATEINFO" => {
            let (_, said) = reply.split_once(": ").unwrap_or_default();
            // The user may not, or nobody may.
            Some(match BackendErrorKind::of_servers(said) {
                kind @ BackendErrorKind::Permission => kind,
                _ => BackendErrorKind::Script,
            })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_has_the_sha1_of_its_text() {
        let digest = sha1_smol::Sha1::from(ACQUIRE.source()).digest().to_string();
        assert_eq!(ACQUIRE.sha1(), digest);
    }

    #[test]
    fn an_answer_tells_the_vote_and_whose_it_is() {
        let number = FencingToken::new(7);
        let left = Duration::from_millis(3_200);
        for (text, guarded) in [
            ("granted 0 ab -", Guarded::new(GuardedVote::Granted(None), "ab")),
            ("granted 7 ab cd", Guarded::new(GuardedVote::Granted(number), "ab").after("cd")),
            ("refused 0 ab -", Guarded::new(GuardedVote::Refused, "ab")),
            ("quarantined 3200 ab -", Guarded::new(GuardedVote::Quarantined { left }, "ab")),
        ] {
            assert_eq!(parse(text), Some(guarded), "{text}");
        }
        for nonsense in ["", "granted", "granted 0 ab", "1 0 ab -", "granted 9007199254740992 a -"]
        {
            assert_eq!(parse(nonsense), None, "{nonsense}");
        }
        let quarantined = GuardedVote::Quarantined { left };
        assert_eq!(quarantined.to_string(), "quarantined for another 3.2s");
    }
}
