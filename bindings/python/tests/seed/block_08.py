from wigwag import Workflow, step

wf = Workflow("order_fulfillment")

@wf.step("validate_order")
async def validate(ctx):
    return {"valid": True}

@wf.step("reserve_inventory", depends_on=["validate_order"])
async def reserve(ctx):
    return {"reserved": True}

@wf.step("charge_card", depends_on=["validate_order"])
async def charge(ctx):
    return {"charged": True}

@wf.step("ship", depends_on=["reserve_inventory", "charge_card"])
async def ship(ctx):
    # Only runs after both reserve and charge complete
    return {"shipped": True}
