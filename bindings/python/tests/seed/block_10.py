@wf.step("charge_card", retries=3, timeout=30)
async def charge(ctx):
    # Retries up to 3 times with exponential backoff
    # Times out after 30 seconds
    return await payment_gateway.charge(ctx.data["amount"])
