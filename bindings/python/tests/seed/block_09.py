@wf.step("send_reminder", delay=timedelta(hours=24))
async def remind(ctx):
    # Runs 24 hours after previous step completes
    await send_reminder_email(ctx.data["user_id"])
