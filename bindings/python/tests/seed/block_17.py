@wf.step("reserve_inventory")
async def reserve(ctx):
    return await inventory.reserve(ctx.data["items"])

@reserve.on_compensate
async def unreserve(ctx, step_result):
    await inventory.release(step_result["reservation_id"])
