# Cancel a workflow
await workflow.cancel(wf_id, reason="User requested refund")

# In a step, check for cancellation
@wf.step("long_process")
async def process(ctx):
    for item in items:
        if await ctx.is_cancellation_requested():
            # Clean up and exit
            return {"cancelled": True, "processed": len(processed)}
        await process_item(item)
