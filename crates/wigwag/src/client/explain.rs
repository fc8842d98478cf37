//! Explains the state of a run: the run, its definition and its inbox, explained by the core.

use std::collections::BTreeSet;

use wigwag_core::{Arrived, Explanation, Fate, Name};

use super::inbox::definition_at_hand;
use super::{RunHandle, names};
use crate::error::Result;
use crate::log;

/// Signals of one name that an explanation reads.
const SIGNALS_READ_MAX: usize = 50;

impl RunHandle {
    /// Explains the state of the run: for each open step its needs, its progress and the effect
    /// of its deadline.
    pub async fn explain(&self) -> Result<Explanation> {
        let loaded = log::read_whole(&*self.inner.store, &self.run).await?.ok_or_else(|| self.not_found())?;
        let run = loaded.run;
        let definition = definition_at_hand(&self.inner, &run).await?;
        let names: BTreeSet<Name> =
            run.waits().filter_map(|(_, point)| point.wait.as_ref()).map(|wait| wait.name.clone()).collect();
        let mut inbox = Vec::new();
        for name in names {
            let page = self.signals_page(Some(name.as_str()), SIGNALS_READ_MAX, None).await?;
            let unconsumed = page.signals.into_iter().filter(|signal| signal.fate == Fate::Unconsumed);
            inbox.extend(unconsumed.map(|signal| Arrived {
                name: signal.name,
                by: signal.source.by,
                at: signal.created_at,
                misfit: signal.misfit,
            }));
        }
        let mut explanation = run.explain(definition.as_deref(), &inbox);
        for reason in names::diagnose(&self.inner, &run).await? {
            explanation.why.push(' ');
            explanation.why.push_str(&sentence(&reason));
        }
        Ok(explanation)
    }
}

/// Formats a warning as a separate sentence.
fn sentence(warning: &str) -> String {
    let mut letters = warning.chars();
    letters.next().map_or_else(String::new, |first| format!("{}{}.", first.to_uppercase(), letters.as_str()))
}
