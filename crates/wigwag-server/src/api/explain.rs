//! Explains why a run does not proceed.

use crate::extract::Of;
use crate::problem::Result;
use crate::wire::{self, Raw};

pub(crate) async fn explain(Of(handle): Of) -> Result<Raw> {
    wire::json(200, &handle.explain().await?)
}
