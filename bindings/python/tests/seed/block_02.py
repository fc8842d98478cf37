# Migrate a workflow to a new definition
await client.migrate(
    wf_id,
    target_definition_hash="sha256:newdef...",
    step_mapping={
        "old_step_name": "new_step_name",  # Rename
        "removed_step": None,               # Mark as skipped
    }
)
