# GOOD: Using idempotency key for external API
@wf.step("charge_card")
async def charge(ctx):
    return await payment_api.charge(
        amount=ctx.data["amount"],
        idempotency_key=f"order-{ctx.data['order_id']}-charge",  # ✓
    )

# BAD: No idempotency - will double-charge on retry
@wf.step("charge_card")
async def charge(ctx):
    return await payment_api.charge(amount=ctx.data["amount"])  # ✗
