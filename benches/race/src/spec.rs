//! The job of a worker process, in `key=value` words.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::Outcome;

/// Settings of a worker, as words on its command line.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spec(BTreeMap<String, String>);

impl Spec {
    /// A job for a contestant.
    pub(crate) fn new(job: &str, contestant: &str) -> Self {
        Self::default().with("job", job).with("contestant", contestant)
    }

    pub(crate) fn with(mut self, name: &str, value: impl fmt::Display) -> Self {
        self.0.insert(name.to_owned(), value.to_string());
        self
    }

    pub(crate) fn seconds(self, time: Duration) -> Self {
        self.with("seconds", time.as_secs_f64())
    }

    pub(crate) fn parse(words: &[String]) -> Outcome<Self> {
        let pair = |word: &String| {
            let (name, value) = word.split_once('=').ok_or_else(|| format!("no `=` in {word}"))?;
            Ok((name.to_owned(), value.to_owned()))
        };
        words.iter().map(pair).collect::<Outcome<_>>().map(Self)
    }

    pub(crate) fn words(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|(name, value)| format!("{name}={value}"))
    }

    pub(crate) fn text(&self, name: &str) -> Outcome<&str> {
        self.0.get(name).map(String::as_str).ok_or_else(|| format!("no {name}=…").into())
    }

    pub(crate) fn number<T: FromStr>(&self, name: &str) -> Outcome<T> {
        let text = self.text(name)?;
        text.parse().map_err(|_| format!("{name}={text} is no number").into())
    }

    pub(crate) fn time(&self, name: &str) -> Outcome<Duration> {
        Duration::try_from_secs_f64(self.number(name)?).map_err(Into::into)
    }

    pub(crate) fn list(&self, name: &str) -> Outcome<Vec<String>> {
        let text = self.text(name)?;
        Ok(text.split(',').filter(|part| !part.is_empty()).map(str::to_owned).collect())
    }
}
