@wf.step("wait_for_approval")
async def wait_approval(ctx):
    # Poll for approval signal
    signal = await ctx.wait_for_signal("approval", timeout=timedelta(days=7))

    if signal is None:
        raise PermanentError("Approval timed out")

    return {"approved_by": signal["approver"]}

# External system sends signal
await workflow.signal(wf_id, "approval", {"approver": "manager@example.com"})
