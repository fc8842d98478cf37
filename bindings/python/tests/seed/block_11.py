@wf.step("charge_card")
async def charge(ctx):
    # Works IF payment gateway supports idempotency
    result = await payment_gateway.charge(
        amount=ctx.data["amount"],
        idempotency_key=f"order-{ctx.data['order_id']}-charge",
    )
    return {"transaction_id": result.id}

@wf.step("send_email")
async def send(ctx):
    # Check-then-act pattern for systems without idempotency
    if await db.email_already_sent(ctx.data["order_id"]):
        return {"skipped": True}

    await email_service.send(ctx.data["email"])
    await db.mark_email_sent(ctx.data["order_id"])
    return {"sent": True}
